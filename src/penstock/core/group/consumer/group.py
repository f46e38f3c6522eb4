"""A consumer group of KIP-848: what its members subscribe to, and who owns which partition.

`modern/group.py` has its epochs and states, `reconcile.py` how its members reach the target assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, partitions_of
from penstock.core.group.consumer.members import ConsumerMember
from penstock.core.group.consumer.records import KEYS
from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.modern.group import ModernGroup
from penstock.core.group.subscription.topics import ResolvedRegex
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages import consumer_group_records as records

# The protocol type that the classic members of such a group have, and that ListGroups shows.
CONSUMER_PROTOCOL_TYPE = "consumer"


class ConsumerGroup(ModernGroup[ConsumerMember, Partitions]):
    """One consumer group."""

    kind = GroupKind.CONSUMER
    keys = KEYS
    member_type = ConsumerMember
    first_epoch = 0

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
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
        # Soft state: how recently patterns were resolved.
        self.regex_version = 0
        # Soft state: members that have reported to own exactly what they were last assigned.
        self.acknowledged: set[str] = set()
        # Soft state: classic members that have yet to rejoin.
        self.awaited_joins: set[str] = set()

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

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> ErrorCode:
        """As for every group; and not for a former member of an instance, which would only join again."""
        holder = None if instance_id is None else self.static_members.get(instance_id)
        if holder is not None and holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return super().check_offset_commit(member_id, instance_id, generation, api_version, transactional=transactional)

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

    def tombstones(self, replaced: dict[str, str] | None = None) -> list[Record]:
        """The records that delete the group; `replaced` maps members to the new ids that earlier records gave them."""
        member_ids = [(replaced or {}).get(member_id, member_id) for member_id in self.members]
        others = [
            *(records.ConsumerGroupRegularExpressionKey(self.group_id, regex) for regex in self.resolved_regexes),
            records.ConsumerGroupPartitionMetadataKey(self.group_id),
        ]
        return self.keys.group_tombstones(self.group_id, member_ids, others)

    def _target_of(self, value: Any) -> Partitions:
        return partitions_of(value.topic_partitions)

    def _replay_other(self, key: Any, value: Any) -> None:
        if isinstance(key, records.ConsumerGroupRegularExpressionKey):
            self.resolved_regexes.pop(key.regular_expression, None)
            if value is not None:
                topics, version, timestamp_ms = value
                self.resolved_regexes[key.regular_expression] = ResolvedRegex(frozenset(topics), version, timestamp_ms)
        elif isinstance(key, records.ConsumerGroupPartitionMetadataKey):
            self.has_partition_metadata = value is not None
        else:
            raise AssertionError(f"{type(key).__name__} is not a record of a consumer group")

    def _put(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        # A record about the assignment leaves the subscription alone, so the counts need no update.
        recount = old is None or new is None or old.subscribed_topic_names is not new.subscribed_topic_names
        if old is not None:
            self._disown(old)
            if recount:
                self._uncount(old)
        super()._put(old, new)
        if new is None:
            assert old is not None
            self.acknowledged.discard(old.member_id)
            return
        assert self.members[new.member_id] is new
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
            assert self.classic_count <= len(self.members)
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
            assert self.classic_count >= 0
            _decrement(self.classic_protocol_counts, {protocol.name for protocol in member.classic.supported_protocols})


def _decrement(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        if counts[name] > 1:
            counts[name] -= 1
        else:
            del counts[name]
