"""Handlers of transactions, in the versions that differ, on a coordinator without a network."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.transactions import add_partitions_to_txn as add_partitions_api
from penstock.api.transactions.add_offsets_to_txn import add_offsets_to_txn
from penstock.api.transactions.add_partitions_to_txn import add_partitions_to_txn
from penstock.api.transactions.describe_transactions import describe_transactions
from penstock.api.transactions.end_txn import end_txn
from penstock.api.transactions.list_transactions import list_transactions
from penstock.api.transactions.transaction_pattern import compile_pattern
from penstock.api.transactions.write_txn_markers import write_txn_markers
from penstock.core.contract import ProducerIdentity
from penstock.core.replica.producer_state import EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.replication.partition import Partition
from penstock.runtime.security.access_control import OPEN
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from support.record_handlers import txn_offset_commit_handler
from support.worlds.transaction_shell import DATA, ID, TransactionShell, call, play

NONE = ErrorCode.NONE
TOPICS = [AddPartitionsToTxnTopic("t", [0])]
STALE = ProducerIdentity(100, 0)


def services(shell: TransactionShell, **others: Any) -> Any:
    return SimpleNamespace(image=shell.image, transactions=shell.transactions, access=OPEN, env=shell.env, **others)


def errors_of(response: AddPartitionsToTxnResponse, version: int) -> list[tuple[str, int, ErrorCode]]:
    topics = response.results_by_topic_v3_and_below
    if version >= 4:
        topics = [topic for row in response.results_by_transaction for topic in row.topic_results]
    return [
        (topic.name, row.partition_index, ErrorCode(row.partition_error_code))
        for topic in topics
        for row in topic.results_by_partition
    ]


def adding(
    producer: ProducerIdentity, version: int, topics: list[AddPartitionsToTxnTopic]
) -> AddPartitionsToTxnRequest:
    if version < 4:
        return AddPartitionsToTxnRequest((), ID, *producer, topics)
    return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(ID, *producer, False, topics)])


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_or_refused(tmp_path: Path, version: int) -> None:
    async def story(shell: TransactionShell) -> None:
        handler = partial(add_partitions_to_txn, services(shell))
        await shell.started()
        producer = await shell.started()
        stale = await call(handler, adding(STALE, version, TOPICS), version)
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert errors_of(stale, version) == [("t", 0, fenced)]
        both = [AddPartitionsToTxnTopic("t", [0, 7]), AddPartitionsToTxnTopic("gone", [0])]
        refused = await call(handler, adding(producer, version, both), version)
        assert errors_of(refused, version) == [
            ("t", 0, ErrorCode.OPERATION_NOT_ATTEMPTED),
            ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("gone", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert shell.state() == "Empty"
        added = await call(handler, adding(producer, version, TOPICS), version)
        assert errors_of(added, version) == [("t", 0, NONE)]
        assert shell.state() == "Ongoing"

    play(tmp_path, story)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_many_transactions_at_once(tmp_path: Path, version: int) -> None:
    async def story(shell: TransactionShell) -> None:
        handler = partial(add_partitions_to_txn, services(shell))
        producer = await shell.begun()
        transactions = [
            AddPartitionsToTxnTransaction(ID, *producer, True, TOPICS),
            AddPartitionsToTxnTransaction("other", *producer, True, TOPICS),
            AddPartitionsToTxnTransaction("", *producer, True, TOPICS),
        ]
        response = await call(handler, AddPartitionsToTxnRequest(transactions), version)
        assert [row.transactional_id for row in response.results_by_transaction] == [ID, "other", ""]
        expected = [NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST]
        assert [error for _, _, error in errors_of(response, version)] == expected

    play(tmp_path, story)


def test_one_transaction_that_cannot_be_stored_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_partitions_api, "TOGETHER_S_MAX", 0.05)

    async def story(shell: TransactionShell) -> None:
        handler = partial(add_partitions_to_txn, services(shell))
        producer = await shell.started()
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(Partition, "committed", lambda *_, **__: never)
        transactions = [
            AddPartitionsToTxnTransaction(ID, *producer, False, TOPICS),
            AddPartitionsToTxnTransaction("other", *producer, False, [AddPartitionsToTxnTopic("gone", [0])]),
        ]
        async with asyncio.timeout(2):
            response = await call(handler, AddPartitionsToTxnRequest(transactions), 5)
        expected = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [error for _, _, error in errors_of(response, 5)] == expected
        never.cancel()

    play(tmp_path, story)


def test_partitions_of_an_absent_coordinator_are_refused(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        handler = partial(add_partitions_to_txn, services(shell))
        shell.transactions.close()
        response = await call(handler, adding(STALE, 3, TOPICS), 3)
        assert errors_of(response, 3) == [("t", 0, ErrorCode.NOT_COORDINATOR)]
        ended = await call(partial(end_txn, services(shell)), EndTxnRequest(ID, *STALE, True), 3)
        assert ended.error_code == ErrorCode.NOT_COORDINATOR
        described = await call(
            partial(describe_transactions, services(shell)), DescribeTransactionsRequest([ID, ""]), 0
        )
        assert [row.error_code for row in described.transaction_states] == [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_REQUEST,
        ]

    play(tmp_path, story)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_offsets_of_a_group_join_the_transaction(tmp_path: Path, version: int) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        handler = partial(add_offsets_to_txn, services(shell, groups=groups))
        await shell.started()
        producer = await shell.started()
        stale = await call(handler, AddOffsetsToTxnRequest(ID, *STALE, "readers"), version)
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert stale.error_code == fenced
        added = await call(handler, AddOffsetsToTxnRequest(ID, *producer, "readers"), version)
        assert added.error_code == NONE
        shard = shell.transactions.coordinator.host(0).shard
        assert [row.topic for row in shard.describe(ID).topics] == [OFFSETS_TOPIC]
        groups.close()

    play(tmp_path, story)


def test_an_end_carries_the_new_epoch_from_version_5_on(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        handler = partial(end_txn, services(shell))
        producer = await shell.begun()
        response = await call(handler, EndTxnRequest(ID, *producer, True), 5)
        assert response == (0, NONE, 100, 1)
        await shell.until(lambda: shell.state() == "CompleteCommit")
        old = await call(handler, EndTxnRequest(ID, 100, 1, True), 4)
        assert old == (0, NONE, -1, -1)

    play(tmp_path, story)


def test_transactions_are_listed_and_described(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.begun()
        describe, listing = (
            partial(describe_transactions, services(shell)),
            partial(list_transactions, services(shell)),
        )
        [row] = (await call(describe, DescribeTransactionsRequest([ID]), 0)).transaction_states
        assert (row.transaction_state, row.topics[0].topic) == ("Ongoing", "t")

        async def found(**filters: object) -> list[str]:
            request = ListTransactionsRequest()._replace(**filters)  # type: ignore[arg-type]
            return [row.transactional_id for row in (await call(listing, request, 2)).transaction_states]

        assert await found() == [ID]
        assert await found(state_filters=["Ongoing", "Nonsense"]) == [ID]
        assert await found(state_filters=["Nonsense"]) == []
        assert await found(state_filters=["Empty"]) == []
        assert await found(producer_id_filters=[100, 5]) == [ID]
        assert await found(producer_id_filters=[5]) == []
        assert await found(duration_filter=60_000) == []
        assert await found(transactional_id_pattern="co.*") == [ID]
        assert await found(transactional_id_pattern="co") == []
        assert await found(transactional_id_pattern="") == [ID]
        unknown = await call(listing, ListTransactionsRequest(["Nonsense", "Empty"]), 2)
        assert unknown.unknown_state_filters == ["Nonsense"]
        bad = await call(listing, ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a.*", "abc", "xabc"),
        ("job-[0-9]+", "job-17", "job-"),
        (r"job\.\d{2}", "job.17", "job.1"),
        ("(a|b)c", "bc", "cc"),
        ("(?i)copy", "COPY", "cop"),
        ("[*+)]x", "*x", "ax"),
        (r"\*\(a", "*(a", "a"),
        ("(a|b)*", "abba", "abc"),
        # With backtracking these would outlast everybody who waits.
        ("a*a*a*a*b", "b", "a" * 30_000),
        ("(a+)+", "a" * 30_000, "a" * 30_000 + "b"),
    ],
)
def test_patterns_match_whole_ids(pattern: str, matching: str, other: str) -> None:
    matches = compile_pattern(pattern)
    assert matches(matching)
    assert not matches(other)


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", "(?=a)b", "(?<!a)b", "(", "[", "a" * 4_097, "(a{1000}){1000}", "*"],
)
def test_patterns_that_cannot_be_read_or_are_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as raised:
        compile_pattern(pattern)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_markers_are_answered_one_by_one(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        written: list[tuple[TopicPartition, int, int, EndMarker]] = []

        async def write(partition: TopicPartition, producer_id: int, producer_epoch: int, marker: EndMarker) -> None:
            if partition.topic == "gone":
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if partition.topic == OFFSETS_TOPIC:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            written.append((partition, producer_id, producer_epoch, marker))

        topics = [WritableTxnMarkerTopic(name, [0]) for name in ("t", "gone", OFFSETS_TOPIC)]
        request = WriteTxnMarkersRequest(
            [WritableTxnMarker(7, 3, True, topics, 5), WritableTxnMarker(8, 0, False, topics[:1], 6)]
        )
        response = await call(partial(write_txn_markers, services(shell, write_marker=write)), request, 1)
        errors = [
            (row.producer_id, topic.name, ErrorCode(topic.partitions[0].error_code))
            for row in response.markers
            for topic in row.topics
        ]
        assert errors == [
            (7, "t", NONE),
            (7, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (7, OFFSETS_TOPIC, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (8, "t", NONE),
        ]
        assert written == [(DATA, 7, 3, EndMarker(False, 5, 0)), (DATA, 8, 0, EndMarker(True, 6, 0))]

    play(tmp_path, story)


def committing(partitions: list[tuple[str, int]], group: str = "readers") -> TxnOffsetCommitRequest:
    topics = [
        TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(index, 5)]) for name, index in partitions
    ]
    return TxnOffsetCommitRequest(ID, group, 100, 0, topics=topics)


def codes(response: TxnOffsetCommitResponse) -> list[ErrorCode]:
    return [ErrorCode(row.error_code) for topic in response.topics for row in topic.partitions]


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (NONE, 5, NONE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_offsets_are_committed_where_the_coordinator_vouches_for_it(
    tmp_path: Path, error: ErrorCode, version: int, told: ErrorCode
) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        asked: list[tuple[str, ProducerIdentity, TopicPartition, bool]] = []

        async def verify(name: str, producer: ProducerIdentity, partition: TopicPartition, adds: bool) -> ErrorCode:
            asked.append((name, producer, partition, adds))
            return error

        handler = txn_offset_commit_handler(shell, groups, verify)
        absent = await call(handler, committing([("t", 0)]), version)
        assert codes(absent) == [ErrorCode.NOT_COORDINATOR]
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        response = await call(handler, committing([("t", 0), ("t", 9), ("gone", 0)]), version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(response) == [told, unknown, unknown]
        assert asked == [(ID, (100, 0), (OFFSETS_TOPIC, 0), version >= 5)]
        assert codes(await call(handler, committing([("gone", 0)]), version)) == [unknown]
        nameless = await call(handler, committing([("t", 0)], group=""), version)
        assert codes(nameless) == [ErrorCode.INVALID_GROUP_ID]
        groups.close()

    play(tmp_path, story)
