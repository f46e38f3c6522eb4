"""A consumer group of KIP-848: its members, the target assignment, and who owns which partition.

The group has two epochs. The group epoch rises whenever the members, their subscriptions or the topics change; the
assignment epoch is the group epoch that the target assignment was computed for. Every member has an epoch of its own,
the one of the target that it has reached. So a group's state is a comparison:

    EMPTY        it has no members
    ASSIGNING    the group epoch is ahead of the assignment epoch
    RECONCILING  some member has not reached the target assignment yet (see reconcile.py)
    STABLE       all members have reached it

All of this is durable, and only `replay` changes it. A log may be read while it is being compacted, so one half of two
records that cancel each other out may be missing: replay accepts them in any combination, and the latest record wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, partitions_of
from penstock.core.group.consumer.members import ConsumerMember
from penstock.core.group.consumer.records import group_tombstones
from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.subscription.topics import ResolvedRegex
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages import consumer_group_records as records
from penstock.wire.messages.list_groups import ListedGroup

# The protocol type that the classic members of such a group have, and that ListGroups shows.
CONSUMER_PROTOCOL_TYPE = "consumer"
# OffsetCommit carries a member epoch from this version on.
_COMMIT_WITH_EPOCH_VERSION = 9


class ConsumerState(StrEnum):
    """The states, as ConsumerGroupDescribe prints them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """One consumer group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.static_members: dict[str, str] = {}
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        # Kafka before 4.1 stored topic metadata in a record, which is deleted with the group's next epoch.
        self.has_partition_metadata = False
        # Counts over the members, updated as they change.
        self.name_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_protocol_counts: Counter[str] = Counter()
        self.classic_count = 0
        self._owners: dict[Uuid, dict[int, str]] = {}
        # Soft state: whether the topics were checked since their last change, and how recently patterns were resolved.
        self.metadata_is_current = False
        self.regex_version = 0
        # Soft state: members that have reported to own exactly what they were last assigned.
        self.acknowledged: set[str] = set()
        # Soft state: classic members that have yet to rejoin.
        self.awaited_joins: set[str] = set()

    @property
    def kind(self) -> GroupKind:
        """Consumer."""
        return GroupKind.CONSUMER

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> ConsumerState:
        """The group's state, as the module describes it."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def is_owned(self, topic_id: Uuid, partition: int) -> bool:
        """Whether a member holds a partition: it was assigned and has not been revoked yet."""
        return partition in self._owners.get(topic_id, ())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member of a static instance."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str, instance_id: str | None) -> Partitions:
        """A member's target assignment; a static one inherits that of the instance's former member id."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.name_counts or any(topic in regex.topics for regex in self.resolved_regexes.values())

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Whether other members still hold a partition of this member's target."""
        return any(
            self.is_owned(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions - member.assigned.get(topic_id, frozenset())
        )

    def listed(self) -> ListedGroup:
        """The group's row in ListGroups."""
        return ListedGroup(self.group_id, CONSUMER_PROTOCOL_TYPE, self.state.value, self.kind.value)

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
        if not transactional and member.classic is None and api_version < _COMMIT_WITH_EPOCH_VERSION:
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

    def tombstones(self, replaced: dict[str, str] | None = None) -> list[Record]:
        """The records that delete the group; `replaced` maps members to the new ids that earlier records gave them."""
        member_ids = [(replaced or {}).get(member_id, member_id) for member_id in self.members]
        return group_tombstones(self.group_id, member_ids, list(self.resolved_regexes))

    def replay(self, key: Any, value: Any) -> None:
        """Apply one record of this group, except the tombstone of the group itself."""
        if isinstance(key, records.ConsumerGroupMetadataKey):
            self.epoch, self.metadata_hash = value
        elif isinstance(key, records.ConsumerGroupMemberMetadataKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, records.ConsumerGroupCurrentMemberAssignmentKey):
            self._replay_assignment(key.member_id, value)
        elif isinstance(key, records.ConsumerGroupTargetAssignmentMetadataKey):
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
        elif isinstance(key, records.ConsumerGroupTargetAssignmentMemberKey):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = partitions_of(value.topic_partitions)
        elif isinstance(key, records.ConsumerGroupRegularExpressionKey):
            self.resolved_regexes.pop(key.regular_expression, None)
            if value is not None:
                topics, version, timestamp_ms = value
                self.resolved_regexes[key.regular_expression] = ResolvedRegex(frozenset(topics), version, timestamp_ms)
        elif isinstance(key, records.ConsumerGroupPartitionMetadataKey):
            self.has_partition_metadata = value is not None
        else:
            raise AssertionError(f"{type(key).__name__} is not a record of a consumer group")

    def _replay_member(self, member_id: str, value: records.ConsumerGroupMemberMetadataValue | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._put(known, (known or ConsumerMember(member_id)).with_metadata(value))
        elif known is not None:
            self._put(known, None)

    def _replay_assignment(
        self, member_id: str, value: records.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._put(known, (known or ConsumerMember(member_id)).with_assignment(value))
        elif known is not None:
            self._put(known, known.without_assignment())

    def _put(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Replace a member by its new version; None if it has left."""
        # A record about the assignment leaves the subscription alone, so the counts need no update.
        recount = old is None or new is None or old.subscribed_topic_names is not new.subscribed_topic_names
        if old is not None:
            self._disown(old)
            if recount:
                self._uncount(old)
        if new is None:
            assert old is not None
            del self.members[old.member_id]
            self.acknowledged.discard(old.member_id)
            return
        self.members[new.member_id] = new
        for partitions in (new.assigned, new.pending_revocation):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, new.member_id))
        if recount:
            self._count(new)

    def _disown(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for partition in numbers:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _count(self, member: ConsumerMember) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.name_counts.update(member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            self.regex_counts[member.subscribed_topic_regex] += 1
        if member.server_assignor is not None:
            self.assignor_counts[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_count += 1
            self.classic_protocol_counts.update({protocol.name for protocol in member.classic.supported_protocols})

    def _uncount(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        _decrement(self.name_counts, member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            _decrement(self.regex_counts, [member.subscribed_topic_regex])
        if member.server_assignor is not None:
            _decrement(self.assignor_counts, [member.server_assignor])
        if member.classic is not None:
            self.classic_count -= 1
            _decrement(self.classic_protocol_counts, {protocol.name for protocol in member.classic.supported_protocols})


def _decrement(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        if counts[name] > 1:
            counts[name] -= 1
        else:
            del counts[name]


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
