"""A consumer, share or streams group: its members, their target assignment, and its epochs.

The group has two epochs. The group epoch rises whenever the members, their subscriptions or the topics change; the
assignment epoch is the group epoch that the target assignment was computed for. Every member has an epoch of its own,
the one of the target that it has reached. So a group's state is a comparison:

    EMPTY        it has no members
    NOT_READY    topics that a streams group needs are missing, or have the wrong number of partitions
    ASSIGNING    the group epoch is ahead of the assignment epoch
    RECONCILING  some member has not reached the target assignment yet
    STABLE       all members have reached it

All of this is durable, and only `replay` changes it. A log may be read while it is being compacted, so one half of two
records that cancel each other out may be missing: replay accepts them in any combination, and the latest record wins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from penstock.core.group.contract import Caller, GroupSettings
from penstock.core.group.group import Group, GroupKind
from penstock.core.group.modern.records import Member, RecordKeys
from penstock.core.group.sizes import NO_ROOM, check_member_bytes, content_bytes
from penstock.core.kept_bytes import KeptBytes
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.list_groups import ListedGroup

Target = TypeVar("Target")

# OffsetCommit carries a member epoch from this version on.
_COMMIT_WITH_EPOCH_VERSION = 9


class GroupState(StrEnum):
    """The states, as requests that describe groups print them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ModernGroup(ABC, Generic[Member, Target]):
    """One group. Its rules for offsets are for members that commit them in their own epoch."""

    kind: GroupKind
    keys: RecordKeys[Any]
    member_type: type[Any]
    # As in Kafka 4.3, the first member of a share or streams group makes it 2.
    first_epoch = 1

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = self.first_epoch
        self.metadata_hash = 0
        self.assignment_epoch = self.first_epoch
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Target] = {}
        # Of each member, and of all.
        self._metadata_bytes: dict[str, int] = {}
        self._all_metadata_bytes = 0
        # Soft state: whether the topics were checked since their last change.
        self.metadata_is_current = False

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> GroupState:
        """The group's state, as the module describes it."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def known_member(self, member_id: str) -> Member:
        """The member of that id; raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            reason = f"Member {member_id} is not a member of group {self.group_id}."
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        return member

    @property
    def metadata_bytes(self) -> int:
        """About how much memory what the members sent takes."""
        return self._all_metadata_bytes

    def check_metadata(self, settings: GroupSettings, kept: KeptBytes, updated: Member, caller: Caller) -> None:
        """Raises INVALID_REQUEST or GROUP_MAX_SIZE_REACHED if there is no room for a member's new metadata."""
        member_id = updated.member_id
        before = self._metadata_bytes.get(member_id, 0)
        size_bytes = content_bytes(updated.metadata_value()) + len(member_id)
        check_member_bytes(settings, self._all_metadata_bytes - before, size_bytes)
        if size_bytes > before and not kept.has_room(caller.widest_prefix):
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_ROOM)

    def listed(self) -> ListedGroup:
        """The group's row in ListGroups."""
        return ListedGroup(self.group_id, self.kind.value, self.state.value, self.kind.value)

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> ErrorCode:
        """Members commit in their own epoch; a commit without an epoch needs an empty group."""
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        if transactional and generation == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and not member.is_classic and api_version < _COMMIT_WITH_EPOCH_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, generation)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Members read in their own epoch; a request without a member id may always read."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, member_epoch)

    def check_offset_delete(self) -> ErrorCode:
        """Always allowed: offsets of subscribed topics are protected one by one."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only an empty group may be deleted."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Each offset's retention counts from its commit."""
        return commit_timestamp_ms

    def replay(self, key: object, value: Any) -> None:
        """Apply one record of this group, except the tombstone of the group itself."""
        if isinstance(key, self.keys.group):
            self._replay_epoch(value)
        elif isinstance(key, self.keys.member):
            known = self.members.get(key.member_id)
            self._all_metadata_bytes -= self._metadata_bytes.pop(key.member_id, 0)
            if value is not None:
                size_bytes = self._metadata_bytes[key.member_id] = content_bytes(value) + len(key.member_id)
                self._all_metadata_bytes += size_bytes
                self._put(known, (known or self.member_type(key.member_id)).with_metadata(value))
            elif known is not None:
                self._put(known, None)
        elif isinstance(key, self.keys.assignment):
            known = self.members.get(key.member_id)
            if value is not None:
                self._put(known, (known or self.member_type(key.member_id)).with_assignment(value))
            elif known is not None:
                self._put(known, known.without_assignment())
        elif isinstance(key, self.keys.target_epoch):
            self._replay_target_epoch(value)
        elif isinstance(key, self.keys.target):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = self._target_of(value)
        else:
            self._replay_other(key, value)

    def _replay_epoch(self, value: Any) -> None:
        self.epoch, self.metadata_hash = value

    def _replay_target_epoch(self, value: Any) -> None:
        self.assignment_epoch = -1 if value is None else value.assignment_epoch

    @abstractmethod
    def _target_of(self, value: Any) -> Target:
        """A member's target from its record."""

    @abstractmethod
    def _replay_other(self, key: Any, value: Any) -> None:
        """Apply a record that only groups of this kind have."""

    def _put(self, old: Member | None, new: Member | None) -> None:
        """Replace a member by its new version; None if it has left."""
        if new is not None:
            self.members[new.member_id] = new
        elif old is not None:
            del self.members[old.member_id]


def _check_epoch(member: Member, epoch: int) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def replay_record(groups: MutableMapping[str, Group], kind: type[ModernGroup[Any, Any]], key: Any, value: Any) -> None:
    """Apply a record of a group of that class, founding the group if need be; the tombstone of its epoch ends it."""
    group: Any = groups.get(key.group_id)
    if not isinstance(group, kind):
        if value is None:
            # What it deletes is gone already, or the group has become one of another kind.
            return
        # A classic group in its place only has offsets, or its tombstone was compacted away.
        group = kind(key.group_id)
        groups[key.group_id] = group
    if value is None and isinstance(key, kind.keys.group):
        del groups[key.group_id]
    else:
        group.replay(key, value)
