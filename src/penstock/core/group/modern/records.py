"""The records that groups of each kind have, under keys of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.core.group.contract import Record
from penstock.core.group.modern.members import ModernMember

Member = TypeVar("Member", bound=ModernMember)


class RecordKeys(NamedTuple, Generic[Member]):
    """The keys of a group's epoch, of its members, their current assignments and targets, and of the target's epoch."""

    group: type[Any]
    member: type[Any]
    assignment: type[Any]
    target: type[Any]
    target_epoch: type[Any]

    def member_record(self, group_id: str, member: Member) -> Record:
        """A member's identity, and what it subscribes to."""
        return Record(self.member(group_id, member.member_id), member.metadata_value())

    def assignment_record(self, group_id: str, member: Member) -> Record:
        """A member's current assignment and state."""
        return Record(self.assignment(group_id, member.member_id), member.assignment_value())

    def member_tombstones(self, group_id: str, member_id: str) -> list[Record]:
        """Everything about a member, in the order that replay requires: its assignment before the member itself."""
        return [Record(key(group_id, member_id), None) for key in (self.assignment, self.target, self.member)]

    def group_tombstones(self, group_id: str, member_ids: Iterable[str], others: Iterable[object] = ()) -> list[Record]:
        """Everything about a group with these members; `others` are its keys that no other kind of group has."""
        member_ids = list(member_ids)
        assert len(set(member_ids)) == len(member_ids), "a member is deleted once"
        keys = [
            *(self.assignment(group_id, member_id) for member_id in member_ids),
            *(self.target(group_id, member_id) for member_id in member_ids),
            self.target_epoch(group_id),
            *(self.member(group_id, member_id) for member_id in member_ids),
            *others,
            self.group(group_id),
        ]
        return [Record(key, None) for key in keys]
