"""Changes of access lists: which entries may be created, and which entries a filter matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.model.access import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.create_acls import AclCreation
from penstock.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

# Kafka's own limit on what one request may remove.
REMOVED_MAX = 10_000


class EntryFilter(NamedTuple):
    """Which entries to match; None and ANY match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Raises INVALID_REQUEST for an invalid filter."""
        for what, value, kind in (
            ("resource type", self.resource_type, ResourceType),
            ("pattern type", self.pattern_type, PatternType),
            ("operation", self.operation, Operation),
            ("permission type", self.permission, Permission),
        ):
            if value == 0 or value not in set(kind):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"The filter names an unknown {what} ({value}).")

    def matches(self, entry: AccessControlEntryRecord) -> bool:
        """Whether it matches this entry."""
        return (
            self.resource_type in (ResourceType.ANY, entry.resource_type)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self._covers(entry)
        )

    def _covers(self, entry: AccessControlEntryRecord) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.resource_name == entry.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        # MATCH finds the entries that apply to a name.
        if entry.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(entry.resource_name)
        return entry.resource_name == WILDCARD


def create_entries(
    image: Image, wanted: Iterable[AclCreation], new_id: Callable[[], Uuid]
) -> Result[list[ApiError | None]]:
    """Add entries; an existing one is not added again. The results are in the order of `wanted`."""
    known = {entry._replace(id=b"") for entry in image.security.entries.values()}
    records: list[AccessControlEntryRecord] = []
    answers: list[ApiError | None] = []
    for creation in wanted:
        try:
            entry = _checked(creation)
        except ApiError as error:
            answers.append(error)
            continue
        answers.append(None)
        if entry not in known:
            known.add(entry)
            assert entry.id == b"", "entries are compared without their ids"
            records.append(entry._replace(id=new_id()))
    assert len(records) <= len(answers)
    return Result(records, answers)


def delete_entries(
    image: Image, filters: Iterable[EntryFilter]
) -> Result[list[ApiError | list[AccessControlEntryRecord]]]:
    """Remove the entries that filters match; one matched by two filters is reported by both and removed once."""
    removed: dict[Uuid, None] = {}
    answers: list[ApiError | list[AccessControlEntryRecord]] = []
    for wanted in filters:
        try:
            found = matching_entries(image, wanted)
        except ApiError as error:
            answers.append(error)
            continue
        removed.update(dict.fromkeys(entry.id for entry in found))
        answers.append(found)
    if len(removed) > REMOVED_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {REMOVED_MAX} entries: remove them in several steps")
    assert removed.keys() <= image.security.entries.keys(), "only what is there is removed"
    return Result([RemoveAccessControlEntryRecord(id=entry_id) for entry_id in removed], answers)


def matching_entries(image: Image, wanted: EntryFilter) -> list[AccessControlEntryRecord]:
    """The entries that a filter matches; raises INVALID_REQUEST for an invalid filter."""
    wanted.check()
    return [entry for entry in image.security.entries.values() if wanted.matches(entry)]


def _checked(wanted: AclCreation) -> AccessControlEntryRecord:
    """An entry without an id; raises INVALID_REQUEST for an invalid one."""

    def refuse(reason: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REQUEST, reason)

    if wanted.resource_type not in set(ResourceType) or wanted.resource_type in (
        ResourceType.UNKNOWN,
        ResourceType.ANY,
    ):
        raise refuse(f"Invalid resource type {wanted.resource_type}")
    if wanted.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise refuse(f"Invalid pattern type {wanted.resource_pattern_type}: an entry is LITERAL or PREFIXED")
    if wanted.operation not in set(Operation) or wanted.operation in (Operation.UNKNOWN, Operation.ANY):
        raise refuse(f"Invalid operation type {wanted.operation}")
    if wanted.permission_type not in (Permission.ALLOW, Permission.DENY):
        raise refuse(f"Invalid permission type {wanted.permission_type}")
    if not wanted.resource_name:
        raise refuse("Invalid empty resource name")
    if wanted.resource_type == ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise refuse(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    kind, separator, name = wanted.principal.partition(":")
    if not separator or not kind or not name:
        raise refuse(
            f"Could not parse principal from `{wanted.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if not wanted.host:
        raise refuse("Invalid empty host: name an address, or * for all")
    return AccessControlEntryRecord(
        b"",
        wanted.resource_type,
        wanted.resource_name,
        wanted.resource_pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )
