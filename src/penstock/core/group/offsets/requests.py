"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

The group decides who may do what; the answers per partition are made here. The API handlers check whether a topic
exists: a coordinator stores what it is given, with the topic's id. An offset of a deleted topic is not returned for one
of the same name, even if no coordinator was there to delete it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.group.contract import (
    Caller,
    Effects,
    GroupSettings,
    ProducerIdentity,
    Record,
    Reply,
    Token,
    Topics,
)
from penstock.core.group.group import Group
from penstock.core.group.offsets.expiry import NO_EXPIRY, offset_tombstone
from penstock.core.group.offsets.offsets import CommittedOffset, Offsets
from penstock.core.group.streams.group import StreamsGroup
from penstock.core.kept_bytes import KeptBytes
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_OFFSET = -1

# As Kafka writes them: only version 1 has an expire timestamp, the newest one has the topic's id.
LATEST_MS = 2**63 - 1
_EXPIRING_VERSION = 1
_VERSION = 4


class OffsetRequests:
    """Requests about offsets. The shard has found the group, or None."""

    __slots__ = ("_kept", "_metadata_max", "_offsets", "_topics")

    def __init__(self, settings: GroupSettings, offsets: Offsets, topics: Topics, kept: KeptBytes) -> None:
        self._kept = kept
        self._metadata_max = settings.offset_metadata_max_bytes
        self._offsets = offsets
        self._topics = topics

    def is_current(self, topic: str, committed: CommittedOffset, topic_id: bytes = ZERO_UUID) -> bool:
        """Whether an offset is one of the topic that has this name, and the id if there is one, now."""
        if topic_id == ZERO_UUID:
            topic_id = self._topics.topic_id(topic) or ZERO_UUID
        return committed.topic_id in (topic_id, ZERO_UUID) or topic_id == ZERO_UUID

    def check_commit(self, group: Group | None, request: OffsetCommitRequest, caller: Caller) -> ErrorCode:
        """Whether the commit is allowed; without a group and a generation it belongs to a simple consumer."""
        generation = request.generation_id_or_member_epoch
        if group is not None:
            error = group.check_offset_commit(
                request.member_id, request.group_instance_id, generation, caller.api_version, transactional=False
            )
            return _unless_late(error, group, request.member_id, generation, request.topics)
        if generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if caller.api_version >= 9 else ErrorCode.ILLEGAL_GENERATION

    def check_transactional_commit(
        self, group: Group | None, request: TxnOffsetCommitRequest, caller: Caller
    ) -> ErrorCode:
        """Whether a producer may commit offsets for the member it names, or for no particular member."""
        if group is None:
            return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        error = group.check_offset_commit(
            request.member_id, request.group_instance_id, request.generation_id, caller.api_version, transactional=True
        )
        error = _unless_late(error, group, request.member_id, request.generation_id, request.topics)
        # Producers don't know the newer error.
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, token: Token, now_ms: int
    ) -> Effects:
        """Record offsets that take effect when the producer's transaction commits."""
        effects = Effects(producer=ProducerIdentity(request.producer_id, request.producer_epoch))
        has_room = self._kept.has_room(caller.widest_prefix)
        topics = []
        for topic in request.topics:
            topic_id = self._topics.topic_id(topic.name) or ZERO_UUID
            partitions = []
            for partition in topic.partitions:
                key = OffsetCommitKey(request.group_id, topic.name, partition.partition_index)
                error = self._commit(key, partition, effects, topic_id, now_ms, NO_EXPIRY, has_room=has_room)
                partitions.append(TxnOffsetCommitResponsePartition(partition.partition_index, error))
            topics.append(TxnOffsetCommitResponseTopic(topic.name, partitions))
        effects.replies.append(Reply(token, TxnOffsetCommitResponse(topics=topics)))
        return effects

    def commit(self, request: OffsetCommitRequest, caller: Caller, token: Token, now_ms: int) -> Effects:
        """Record the offsets; each partition has an answer of its own."""
        effects = Effects()
        has_room = self._kept.has_room(caller.widest_prefix)
        expire_timestamp = NO_EXPIRY
        if request.retention_time_ms != -1:
            # A client may ask for a retention that overflows.
            expire_timestamp = min(now_ms + request.retention_time_ms, LATEST_MS)
        topics = []
        for topic in request.topics:
            topic_id = topic.topic_id
            if topic_id == ZERO_UUID and expire_timestamp == NO_EXPIRY:
                topic_id = self._topics.topic_id(topic.name) or ZERO_UUID
            partitions = []
            for partition in topic.partitions:
                key = OffsetCommitKey(request.group_id, topic.name, partition.partition_index)
                error = self._commit(key, partition, effects, topic_id, now_ms, expire_timestamp, has_room=has_room)
                partitions.append(OffsetCommitResponsePartition(partition.partition_index, error))
            topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
        effects.replies.append(Reply(token, OffsetCommitResponse(topics=topics)))
        return effects

    def _commit(
        self,
        key: OffsetCommitKey,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        effects: Effects,
        topic_id: bytes,
        now_ms: int,
        expire_timestamp: int,
        *,
        has_room: bool,
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._metadata_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if not has_room:
            # What replaces an offset and is no longer takes no room.
            previous = self._offsets.get(*key)
            if previous is None or len(previous.metadata) < len(metadata):
                return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
        value = OffsetCommitValue(offset, leader_epoch, metadata, now_ms, expire_timestamp, topic_id)
        effects.records.append(Record(key, value, _VERSION if expire_timestamp == NO_EXPIRY else _EXPIRING_VERSION))
        return ErrorCode.NONE

    def fetch(
        self,
        group: Group | None,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        topics: Sequence[OffsetFetchRequestTopics] | None,
        *,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup:
        """The offsets of the requested partitions, or all of the group's; an unknown group has none."""
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_fetch(member_id, member_epoch)
        if error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return OffsetFetchResponseGroup(group_id, (), error)
        committed = self._offsets.of_group(group_id) if error is ErrorCode.NONE else {}

        def partition(topic: str, index: int, topic_id: bytes = ZERO_UUID) -> OffsetFetchResponsePartitions:
            if require_stable and self._offsets.has_pending(group_id, topic, index):
                return _fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            found = committed.get(topic, {}).get(index)
            if found is not None and not self.is_current(topic, found, topic_id):
                found = None
            return _fetched(index, found, ErrorCode.NONE)

        if topics is None:
            rows = [
                OffsetFetchResponseTopics(topic, ZERO_UUID, [partition(topic, index) for index in partitions])
                for topic, partitions in committed.items()
            ]
        else:
            rows = [
                OffsetFetchResponseTopics(
                    topic.name,
                    topic.topic_id,
                    [partition(topic.name, index, topic.topic_id) for index in topic.partition_indexes],
                )
                for topic in topics
            ]
        return OffsetFetchResponseGroup(group_id, rows)

    def delete(self, group: Group | None, request: OffsetDeleteRequest, token: Token) -> Effects:
        """Delete offsets of topics that no member reads."""
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if group is None or error is not ErrorCode.NONE:
            return Effects(replies=[Reply(token, OffsetDeleteResponse(error_code=error))])
        effects = Effects()
        topics = []
        for topic in request.topics:
            in_use = group.is_subscribed_to(topic.name)
            partition_error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            partitions = [OffsetDeleteResponsePartition(index, partition_error) for index in indexes]
            topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
            if not in_use:
                effects.records += [
                    offset_tombstone(group.group_id, topic.name, index)
                    for index in indexes
                    if self._offsets.get(group.group_id, topic.name, index) is not None
                    or self._offsets.has_pending(group.group_id, topic.name, index)
                ]
        effects.replies.append(Reply(token, OffsetDeleteResponse(topics=topics)))
        return effects


def _unless_late(
    error: ErrorCode,
    group: Group,
    member_id: str,
    epoch: int,
    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
) -> ErrorCode:
    """A streams group knows since when a member has had each of its tasks, so that an earlier epoch may do."""
    if error is not ErrorCode.STALE_MEMBER_EPOCH or not isinstance(group, StreamsGroup):
        return error
    partitions = [(topic.name, row.partition_index) for topic in topics for row in topic.partitions]
    return ErrorCode.NONE if group.allows_late_commit(member_id, epoch, partitions) else error


def commit_refused(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_refused(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _fetched(index: int, committed: CommittedOffset | None, error: ErrorCode) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", error)
    return OffsetFetchResponsePartitions(index, committed.offset, committed.leader_epoch, committed.metadata, error)
