"""The registry's errors, with Confluent's error codes."""

from __future__ import annotations

from penstock.gateway.web.problem import Problem


def subject_not_found(subject: str) -> Problem:
    """No version of this subject has ever been registered."""
    return Problem(40401, f"Subject '{subject}' not found.", "GET /subjects lists the subjects")


def version_not_found(version: object) -> Problem:
    """The subject exists, but not this version."""
    return Problem(40402, f"Version {version} not found.", "GET /subjects/{subject}/versions lists them")


def schema_not_found(what: object = "") -> Problem:
    """No schema with this id, or none that matches the one that was sent."""
    return Problem(40403, f"Schema {what} not found" if what != "" else "Schema not found", "register it first")


def subject_soft_deleted(subject: str) -> Problem:
    """The subject is soft-deleted."""
    return Problem(40404, f"Subject '{subject}' was soft deleted.", "set permanent=true to delete it permanently")


def subject_not_soft_deleted(subject: str) -> Problem:
    """Only a soft-deleted subject can be deleted permanently."""
    return Problem(
        40405, f"Subject '{subject}' was not deleted first before being permanently deleted", "delete it first"
    )


def version_soft_deleted(subject: str, version: int) -> Problem:
    """The version is soft-deleted."""
    return Problem(
        40406, f"Subject '{subject}' Version {version} was soft deleted.", "set permanent=true to delete it permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> Problem:
    """Only a soft-deleted version can be deleted permanently."""
    return Problem(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
        "delete it first",
    )


def level_not_configured(subject: str) -> Problem:
    """The subject has no compatibility level of its own."""
    return Problem(
        40408,
        f"Subject '{subject}' does not have subject-level compatibility configured",
        "set defaultToGlobal=true for the level that applies",
    )


def mode_not_configured(subject: str) -> Problem:
    """The subject has no mode of its own."""
    return Problem(
        40409,
        f"Subject '{subject}' does not have subject-level mode configured",
        "set defaultToGlobal=true for the mode that applies",
    )


def incompatible(subject: str, reasons: list[str]) -> Problem:
    """The schema violates the subject's compatibility level. Confluent's code is the bare status."""
    return Problem(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{'; '.join(reasons)}]",
        "change the schema, or the subject's level with PUT /config/{subject}",
    )


def invalid_schema(reason: object) -> Problem:
    """The text is not a valid schema."""
    return Problem(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> Problem:
    """Not a version number."""
    return Problem(
        42202,
        f"The specified version '{version[:40]}' is not a valid version id.",
        "use a number from 1 to 2147483647, or latest",
    )


def invalid_level() -> Problem:
    """Not a compatibility level."""
    return Problem(
        42203,
        "Invalid compatibility level.",
        "use NONE, BACKWARD, FORWARD, FULL, or one of the last three with _TRANSITIVE",
    )


def invalid_mode() -> Problem:
    """Not a mode."""
    return Problem(42204, "Invalid mode.", "use READWRITE, READONLY or IMPORT")


def not_permitted(reason: str, fix: str = "") -> Problem:
    """The mode does not permit it."""
    return Problem(42205, reason, fix)


def reference_exists(what: str) -> Problem:
    """Other schemas refer to it."""
    return Problem(42206, f"One or more references exist to the schema {what}.", "delete those that refer to it")


def id_does_not_match(schema_id: int) -> Problem:
    """An import uses an id that another schema has."""
    return Problem(42207, f"Overwrite new schema with id {schema_id} is not permitted.", "choose another id")


def invalid_subject(subject: str) -> Problem:
    """Not a valid subject name."""
    return Problem(
        42208, f"The specified subject '{subject[:80]}' is not a valid.", "use a name without control characters"
    )


def numbers_exhausted(why: str, fix: str) -> Problem:
    """There is no id or version number left for the schema."""
    return Problem(42205, why, fix)


def not_storable() -> Problem:
    """Readers of the topic would ignore the record."""
    return Problem(42201, "Invalid schema: its metadata, rules or settings are nested too deeply", "make them flatter")


def too_large(size: int, size_max: int, what: str = "The schema") -> Problem:
    """The schema is larger than a record may be."""
    return Problem(
        42209,
        f"{what} has {size:,} bytes, more than {size_max:,} (the limit schema_bytes_max).",
        "split it with references",
    )


def too_laborious(reason: str, fix: str) -> Problem:
    """Parsing or comparing the schema exceeds a request's budget."""
    return Problem(42201, f"Invalid schema: {reason}", f"make the schema smaller, or {fix}")


def store_failed(reason: object) -> Problem:
    """The topic could not be written or read."""
    return Problem(50001, f"Error in the backend data store: {reason}", "check that the brokers can be reached")


def timed_out(what: str) -> Problem:
    """The topic took too long."""
    return Problem(50002, f"{what} timed out", "try again; check that the brokers can be reached")
