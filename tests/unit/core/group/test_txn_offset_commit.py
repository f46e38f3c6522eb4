"""Offsets that producers commit inside their transactions: who may, when they are seen, and what a new coordinator
makes of them that reads the log."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from penstock.core.group.contract import Caller, GroupSettings, ProducerIdentity
from penstock.core.group.shard import GroupShard
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID
from penstock.wire.frame import decode_coordinator_key, decode_versioned, encode_coordinator_key, encode_versioned
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.worlds.group_world import GroupWorld, NoTopics, check_kept_bytes

GROUP = "g"
CALLER = Caller("client", "/127.0.0.1", 5)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class Row(NamedTuple):
    """One record of the log, with the producer of its batch; or the marker that ends a producer's transaction."""

    producer_id: int
    key: bytes = b""
    value: bytes | None = None
    commits: bool | None = None


class OffsetsLog:
    """A shard and the log of its partition, with the markers of transactions in it."""

    def __init__(self) -> None:
        self.shard = _shard()
        self.rows: list[Row] = []
        self.now_ms = 1_000

    def commit_in_transaction(self, producer_id: int, offset: int, partition: int = 0, **facts: object) -> int:
        topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(partition, offset)])]
        request = TxnOffsetCommitRequest("txn", GROUP, producer_id, 0, topics=topics)._replace(**facts)  # type: ignore[arg-type]
        return self._ask("txn_offset_commit", request).topics[0].partitions[0].error_code  # type: ignore[attr-defined,no-any-return]

    def commit(self, offset: int, partition: int = 0) -> int:
        topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(partition, offset)])]
        response = self._ask("offset_commit", OffsetCommitRequest(GROUP, topics=topics))
        return response.topics[0].partitions[0].error_code  # type: ignore[attr-defined,no-any-return]

    def delete(self, partition: int = 0) -> None:
        topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(partition)])]
        self._ask("offset_delete", OffsetDeleteRequest(GROUP, topics))

    def end(self, producer_id: int, commits: bool) -> None:
        self.shard.replay_end_transaction(producer_id, commits)
        check_kept_bytes(self.shard)
        self.rows.append(Row(producer_id, commits=commits))

    def seen(self, shard: GroupShard | None = None, *, stable: bool = False) -> list[int | ErrorCode]:
        """What a consumer finds for the partitions 0 and 1: an offset, or an error."""
        topics = [OffsetFetchRequestTopics("t", partition_indexes=[0, 1])]
        found = (shard or self.shard).offset_fetch_group(OffsetFetchRequestGroup(GROUP, topics=topics), stable, CALLER)
        return [
            ErrorCode(row.error_code) if row.error_code else row.committed_offset for row in found.topics[0].partitions
        ]

    def loaded(self) -> GroupShard:
        """What another coordinator reads from the log: batches of producers are replayed where they come."""
        shard = _shard()
        for offset, row in enumerate(self.rows):
            if row.commits is not None:
                shard.replay_end_transaction(row.producer_id, row.commits)
            elif row.producer_id != NO_PRODUCER_ID:
                message, classes = decode_coordinator_key("group", row.key)
                value = None if row.value is None else decode_versioned(classes.value, row.value)
                shard.replay(message, value, offset, row.producer_id)
            else:
                assert shard.load([(row.key, row.value)]) == []
            check_kept_bytes(shard)
        shard.loaded(self.now_ms)
        check_kept_bytes(shard)
        assert shard._offsets._stored.keys() == shard._offsets._stored_bytes.keys()
        return shard

    def _ask(self, method: str, request: object) -> object:
        effects = getattr(self.shard, method)(request, CALLER, 0, self.now_ms)
        producer_id = effects.producer.producer_id if effects.producer else NO_PRODUCER_ID
        for record in effects.records:
            self.shard.replay(record.key, record.value, len(self.rows), producer_id)
            value = None if record.value is None else encode_versioned(record.value, record.value_version)
            self.rows.append(Row(producer_id, encode_coordinator_key(record.key), value))
        check_kept_bytes(self.shard)
        [reply] = effects.replies
        return reply.response


def _shard() -> GroupShard:
    return GroupShard(GroupSettings(), NoTopics(), Random(0), lambda _group: {})


def test_offsets_are_seen_when_the_transaction_commits() -> None:
    log = OffsetsLog()
    log.commit(3)
    assert log.commit_in_transaction(77, 5) == ErrorCode.NONE
    assert log.seen() == [3, -1]
    assert log.seen(stable=True) == [UNSTABLE, -1]
    log.end(77, True)
    assert log.seen(stable=True) == [5, -1]


def test_offsets_of_an_aborted_transaction_are_never_seen() -> None:
    log = OffsetsLog()
    log.commit_in_transaction(77, 5)
    assert log.seen(stable=True) == [UNSTABLE, -1]
    log.end(77, False)
    assert log.seen(stable=True) == [-1, -1]


@pytest.mark.parametrize("commits", [False, True])
def test_a_group_that_only_a_transaction_has_named_is_there_while_it_has_offsets(commits: bool) -> None:
    log = OffsetsLog()
    log.commit_in_transaction(77, 5)
    assert [row.group_id for row in log.loaded().list_groups()] == [GROUP]
    log.end(77, commits)
    assert bool(log.loaded().list_groups()) is commits
    log.delete()
    assert log.loaded().list_groups() == []


def test_the_records_are_the_producers() -> None:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
    request = TxnOffsetCommitRequest("txn", GROUP, 77, 4, topics=topics)
    effects = _shard().txn_offset_commit(request, CALLER, 0, 1_000)
    assert effects.producer == ProducerIdentity(77, 4)
    assert len(effects.records) == 1


def test_too_much_metadata_is_refused_for_its_partition_only() -> None:
    log = OffsetsLog()
    wordy = TxnOffsetCommitRequestPartition(0, 5, committed_metadata="x" * 4097)
    topics = [TxnOffsetCommitRequestTopic("t", [wordy, TxnOffsetCommitRequestPartition(1, 6)])]
    assert log.commit_in_transaction(77, 0, topics=topics) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    log.end(77, True)
    assert log.seen() == [-1, 6]


def test_who_names_a_generation_of_no_group_is_refused() -> None:
    log = OffsetsLog()
    assert log.commit_in_transaction(77, 5, generation_id=1) == ErrorCode.ILLEGAL_GENERATION
    assert log.rows == []


def test_who_names_a_member_must_be_it() -> None:
    world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=0))
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(GROUP, 10_000, 10_000, protocol_type="consumer", protocols=protocols)
    member_id = world.answer("join_group", join, version=9).member_id
    world.ask("join_group", join._replace(member_id=member_id), version=9)
    world.advance(0)
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]

    def error(**facts: object) -> int:
        request = TxnOffsetCommitRequest("txn", GROUP, 77, 0, topics=topics)._replace(**facts)  # type: ignore[arg-type]
        return world.answer("txn_offset_commit", request, version=5).topics[0].partitions[0].error_code  # type: ignore[no-any-return]

    assert error(member_id=member_id, generation_id=1) == ErrorCode.NONE
    assert error(member_id=member_id, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert error(member_id="other", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error() == ErrorCode.NONE, "older producers name no member"


@pytest.mark.parametrize("commits", [True, False])
def test_a_commit_after_it_wins_over_a_pending_offset_when_the_log_is_loaded(commits: bool) -> None:
    log = OffsetsLog()
    log.commit_in_transaction(77, 5)
    log.commit(9)
    assert log.seen(log.loaded(), stable=True) == [UNSTABLE, -1]
    log.end(77, commits)
    assert log.seen() == [9, -1]
    assert log.seen(log.loaded()) == [9, -1]


def test_a_deletion_after_a_transaction_reaches_what_it_committed_when_the_log_is_loaded() -> None:
    log = OffsetsLog()
    log.commit_in_transaction(77, 5)
    log.end(77, True)
    log.delete()
    assert log.seen(log.loaded()) == log.seen() == [-1, -1]


@pytest.mark.parametrize("seed", range(100))
def test_loading_the_log_gives_the_same_state(seed: int) -> None:
    random = Random(seed)
    log = OffsetsLog()
    for _ in range(40):
        partition, offset, producer_id = random.randrange(2), random.randrange(100), random.randrange(3)
        kind = random.random()
        if kind < 0.4:
            log.commit_in_transaction(producer_id, offset, partition)
        elif kind < 0.6:
            log.commit(offset, partition)
        elif kind < 0.7:
            log.delete(partition)
        else:
            log.end(producer_id, random.random() < 0.7)
        loaded = log.loaded()
        assert log.seen(loaded) == log.seen()
        assert log.seen(loaded, stable=True) == log.seen(stable=True)
