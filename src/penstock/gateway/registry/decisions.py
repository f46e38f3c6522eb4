"""Decides requests to change the registry: the records to write and the answer, from the state alone.

A decision holds for the state it was made from; the writer checks that no other record came in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.gateway.registry import errors
from penstock.gateway.registry.analysis_cache import AnalyzedSchema
from penstock.gateway.registry.lookup import find_same, parse_source, pinned, stored_text, version_number
from penstock.gateway.registry.records import ID_END, RegistryRecord, schema_record
from penstock.gateway.registry.schema import SchemaUnusable, Source, StoredSchema, fingerprint
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, context_of


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to append in this order, and the answer once they are. Each prefix is a valid change."""

    records: tuple[RegistryRecord, ...]
    answer: Any


def register(
    state: RegistryState,
    subject: str,
    source: Source,
    *,
    normalize: bool = False,
    schema_id: int | None = None,
    version: int | None = None,
) -> Decision:
    """Register a schema as a subject's next version; the answer is the StoredSchema, which may have existed before.

    `schema_id` and `version` are for subjects in IMPORT mode.
    """
    mode = _check_mode(state, subject, importing=schema_id is not None)
    context = context_of(subject)
    source = pinned(state, context, source)
    parsed = parse_source(state, context, source)
    normalize = normalize or bool(state.config_in_scope(subject).get("normalize"))
    text = parsed.normalized if normalize else parsed.canonical
    if version is None:
        known = find_same(state, subject, source, text)
        if known is not None and schema_id in (None, known.id):
            return Decision((), known)
    if mode != "IMPORT":
        reasons = compatibility_problems(state, subject, parsed)
        if reasons:
            raise errors.incompatible(subject, reasons)
    next_version = max((schema.version for schema in state.versions(subject)), default=0) + 1
    if version is not None and version != next_version and mode != "IMPORT":
        raise errors.invalid_schema(f"version {version} is not the next one, {next_version}")
    if next_version >= ID_END and version is None:
        raise errors.numbers_exhausted(
            f"subject {subject} has version {next_version - 1}, the last one there is",
            "delete that version permanently, or use another subject",
        )
    new_print = fingerprint(text, source.references, source.metadata, source.rule_set)
    if schema_id is not None:
        if any(schema.fingerprint != new_print for schema in state.with_id(context, schema_id)):
            raise errors.id_does_not_match(schema_id)
    else:
        schema_id = state.id_of(context, new_print) or state.next_id(context)
    schema = StoredSchema(
        subject,
        version or next_version,
        schema_id,
        source.schema_type,
        text,
        source.references,
        source.metadata,
        source.rule_set,
    )
    records: list[RegistryRecord] = []
    if context != DEFAULT_CONTEXT and context not in state.contexts():
        records.append(RegistryRecord("CONTEXT", context, value={"tenant": "default", "context": context}))
    # An older, deleted version with the same id would shadow this one when the id is looked up.
    records += [
        RegistryRecord("SCHEMA", subject, old.version)
        for old in state.versions(subject)
        if old.deleted
        and old.id == schema.id
        and old.version < schema.version
        and not state.referrers(subject, old.version)
    ]
    record = schema_record(schema)
    size, size_max = len(record.key_bytes()) + len(record.value_bytes() or b""), state.analyses.budgets.schema_bytes_max
    if size > size_max:
        raise errors.too_large(size, size_max, "The schema's record, with its references,")
    return Decision((*records, record), schema)


def _check_mode(state: RegistryState, subject: str, *, importing: bool) -> str:
    _check_writable(state, subject)
    mode = state.mode_in_scope(subject)
    owner = f"Subject {subject} in context {context_of(subject)}"
    if importing and mode != "IMPORT":
        raise errors.not_permitted(f"{owner} is not in import mode", "leave out `id`, or set its mode to IMPORT")
    if not importing and mode == "IMPORT":
        raise errors.not_permitted(f"{owner} is not in read-write mode", "give `id`, or set its mode to READWRITE")
    return mode


def compatibility_problems(
    state: RegistryState, subject: str, parsed: AnalyzedSchema, against: list[StoredSchema] | None = None
) -> list[str]:
    """Why a schema is not compatible with a subject; empty if it is.

    `against` are the versions to compare with instead of the subject's own.
    """
    older = state.live_versions(subject) if against is None else against
    level = state.level(subject)
    chosen = older if level.transitive else older[-1:]
    try:
        others = [(each.version, stored_text(state, each)) for each in chosen]
        return state.analyses.incompatibilities(level, parsed.text, others)
    except SchemaUnusable as error:
        raise errors.invalid_schema(error) from None


def delete_version(state: RegistryState, subject: str, version: str, *, permanent: bool) -> Decision:
    """Delete a version, softly or permanently; the answer is its number."""
    _check_writable(state, subject)
    number = version_number(version)
    everything = state.versions(subject)
    if not everything:
        raise errors.subject_not_found(subject)
    if number is None:
        candidates = everything if permanent else state.live_versions(subject) or everything
        number = candidates[-1].version
    schema = state.version(subject, number)
    if schema is None:
        raise errors.version_not_found(version)
    if any(permanent or not referrer.deleted for referrer in state.referrers(subject, number)):
        raise errors.reference_exists(f"{{subject={subject},version={number}}}")
    if not permanent:
        if schema.deleted:
            raise errors.version_soft_deleted(subject, number)
        return Decision((schema_record(replace(schema, deleted=True)),), number)
    if not schema.deleted:
        raise errors.version_not_soft_deleted(subject, number)
    return Decision((RegistryRecord("SCHEMA", subject, number), *_forget(state, subject, [number])), number)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Decision:
    """Delete a subject, softly or permanently; the answer is the list of its versions."""
    _check_writable(state, subject)
    everything = state.versions(subject)
    if not everything:
        raise errors.subject_not_found(subject)
    versions = everything if permanent else state.live_versions(subject)
    if not versions:
        raise errors.subject_soft_deleted(subject)
    numbers = [schema.version for schema in versions]
    for number in numbers:
        if any(
            referrer.subject != subject and (permanent or not referrer.deleted)
            for referrer in state.referrers(subject, number)
        ):
            raise errors.reference_exists(f"{{subject={subject},version={number}}}")
    if not permanent:
        value = {"subject": subject, "version": numbers[-1]}
        return Decision((RegistryRecord("DELETE_SUBJECT", subject, value=value),), numbers)
    if any(not schema.deleted for schema in versions):
        raise errors.subject_not_soft_deleted(subject)
    gone = [RegistryRecord("SCHEMA", subject, number) for number in reversed(numbers)]
    return Decision((*gone, *_forget(state, subject, numbers)), numbers)


def _forget(state: RegistryState, subject: str, numbers: list[int]) -> list[RegistryRecord]:
    """A subject's settings are deleted with its last version."""
    if any(schema.version not in numbers for schema in state.versions(subject)):
        return []
    kinds = [("CONFIG", state.config(subject)), ("MODE", state.mode(subject))]
    return [RegistryRecord(kind, subject) for kind, value in kinds if value is not None]


def _check_writable(state: RegistryState, subject: str) -> None:
    if state.mode_in_scope(subject).startswith("READONLY"):
        raise errors.not_permitted(
            f"Subject {subject} in context {context_of(subject)} is in read-only mode",
            "set its mode with PUT /mode/{subject}",
        )
