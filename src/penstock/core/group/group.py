"""What the shard and the offsets need from a group, whichever protocol its members use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol, TypeVar

from penstock.core.group.contract import Record
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.list_groups import ListedGroup


class GroupKind(StrEnum):
    """The protocol that a group's members agreed on, as ListGroups prints it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Random(Protocol):
    """The part of `random.Random` that a coordinator needs; the shell passes one in."""

    def getrandbits(self, bits: int, /) -> int:
        """A number of that many random bits."""


class Group(Protocol):
    """A group of any kind. Checks return ErrorCode.NONE where the request is allowed."""

    group_id: str
    kind: GroupKind

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; only offsets keep such a group alive."""

    @property
    def metadata_bytes(self) -> int:
        """About how much memory what its members sent takes."""

    def listed(self) -> ListedGroup:
        """The group's row in ListGroups."""

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> ErrorCode:
        """Whether this member of this generation (or member epoch) may commit offsets now."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this member may read the group's offsets; None and -1 mean no particular member."""

    def check_offset_delete(self) -> ErrorCode:
        """Whether offsets may be deleted in the group's current state."""

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted in its current state."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, which protects the topic's offsets from deletion and expiry."""

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """When an offset's retention starts; None while the group's offsets don't expire."""

    def tombstones(self) -> list[Record]:
        """The records that delete the group itself; its offsets have tombstones of their own."""


GroupT = TypeVar("GroupT", bound=Group)


def random_uuid(random: Random) -> str:
    """A random (version 4) UUID in its usual text form, which member ids end with."""
    bits = random.getrandbits(128)
    bits = bits & ~(0xF << 76) | (0x4 << 76)
    bits = bits & ~(0x3 << 62) | (0x2 << 62)
    digits = f"{bits:032x}"
    assert len(digits) == 32
    assert digits[12] == "4", "its version"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def refuse_if(condition: bool, reason: str) -> None:
    """Raises INVALID_REQUEST with that reason."""
    if condition:
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)


def find_group(groups: Mapping[str, Group], kind: type[GroupT], group_id: str) -> GroupT:
    """The group of that name and class; raises GROUP_ID_NOT_FOUND."""
    group = groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind.kind} group.")
    return group
