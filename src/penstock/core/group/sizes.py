"""How much memory what members send takes, so that no group takes all of it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.group.contract import GroupSettings, Record
from penstock.model.errors import ApiError, ErrorCode

# The metadata of a member is one record, which has to fit into the log.
MEMBER_BYTES_MAX = 1_000_000
# What must not be written by halves has to fit into one batch of the log.
WHOLE_BYTES_MAX = 1_000_000

NO_ROOM = (
    "All groups that the client may use by the same right have more members, metadata and offsets than they may"
    " (penstock.coordinator.prefix.bytes.max)."
)

_NUMBER_BYTES = 8
_RECORD_BYTES = 64


def content_bytes(content: object) -> int:
    """About how much memory a message, or a part of one, holds."""
    if isinstance(content, str):
        return len(content) if content.isascii() else len(content.encode(errors="replace"))
    if isinstance(content, bytes | bytearray | memoryview):
        return len(content)
    if isinstance(content, list | tuple | set | frozenset):
        return sum(map(content_bytes, content))
    return _NUMBER_BYTES


def fit_one_batch(records: Iterable[Record]) -> bool:
    """Whether these records are written together or not at all, even if the coordinator dies meanwhile."""
    sizes = (_RECORD_BYTES + content_bytes(record.key) + content_bytes(record.value) for record in records)
    return sum(sizes) <= WHOLE_BYTES_MAX


def check_member_bytes(settings: GroupSettings, others_bytes: int, member_bytes: int) -> None:
    """Raises INVALID_REQUEST if a member has too much metadata, GROUP_MAX_SIZE_REACHED if its group has with it."""
    if member_bytes > MEMBER_BYTES_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The member's metadata has about {member_bytes} bytes, and may have {MEMBER_BYTES_MAX}.",
        )
    if others_bytes + member_bytes > settings.metadata_bytes_max:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The metadata of all members of the group may have {settings.metadata_bytes_max} bytes"
            " (penstock.group.metadata.max.bytes).",
        )


def check_resolved_bytes(settings: GroupSettings, resolved_bytes: int) -> None:
    """Raises GROUP_MAX_SIZE_REACHED if the topics that match a group's patterns take too much memory."""
    if resolved_bytes > settings.metadata_bytes_max:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The topics that match the regular expressions of the group's members may have"
            f" {settings.metadata_bytes_max} bytes (penstock.group.metadata.max.bytes).",
        )
