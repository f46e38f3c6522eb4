"""The answers of transaction handlers over a socket, in every version."""

from __future__ import annotations

import time

from api_world import Ask, World

from penstock.model.errors import ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

PATIENCE_S = 10
GROUP = "any"
PASSING = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def started(ask: Ask, name: str) -> tuple[int, int]:
    """A producer with a transactional id, as soon as its coordinator is there."""
    deadline = time.monotonic() + PATIENCE_S
    while ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4).coordinators[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while (response := ask(InitProducerIdRequest(name, 60_000), 4)).error_code in PASSING:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


def begun(ask: Ask, topic: str, name: str) -> tuple[int, int]:
    producer = started(ask, name)
    request = AddPartitionsToTxnRequest((), name, *producer, [AddPartitionsToTxnTopic(topic, [0])])
    response = ask(request, 3)
    assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return producer


def check_add_partitions_to_txn(ask: Ask, world: World, version: int) -> None:
    name = f"adds-{version}"
    producer = started(ask, name)
    topics = [AddPartitionsToTxnTopic(world.topic, [0, 1])]
    if version < 4:
        response = ask(AddPartitionsToTxnRequest((), name, *producer, topics), version)
        rows = response.results_by_topic_v3_and_below
    else:
        transaction = AddPartitionsToTxnTransaction(name, *producer, False, topics)
        response = ask(AddPartitionsToTxnRequest([transaction]), version)
        rows = response.results_by_transaction[0].topic_results
    assert [row.partition_error_code for row in rows[0].results_by_partition] == [0, 0]


def check_add_offsets_to_txn(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    name = f"offsets-{version}"
    assert ask(AddOffsetsToTxnRequest(name, *started(ask, name), GROUP), version).error_code == 0


def check_end_txn(ask: Ask, world: World, version: int) -> None:
    name = f"ends-{version}"
    producer = begun(ask, world.new_topic(), name)
    response = ask(EndTxnRequest(name, *producer, True), version)
    assert response.error_code == 0
    if version >= 5:
        assert (response.producer_id, response.producer_epoch) == (producer[0], producer[1] + 1)


def check_write_txn_markers(ask: Ask, world: World, version: int) -> None:
    # A marker takes an offset, and other checks count those of the common topic.
    topics = [WritableTxnMarkerTopic(world.new_topic(), [0, 99])]
    response = ask(WriteTxnMarkersRequest([WritableTxnMarker(999_999, 0, True, topics, 0)]), version)
    [row] = response.markers
    errors = {found.partition_index: found.error_code for found in row.topics[0].partitions}
    assert errors == {0: ErrorCode.NONE, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def check_txn_offset_commit(ask: Ask, world: World, version: int) -> None:
    name = f"commits-{version}"
    producer = started(ask, name)
    if version < 5:
        assert ask(AddOffsetsToTxnRequest(name, *producer, GROUP), 3).error_code == 0
    topics = [TxnOffsetCommitRequestTopic(world.topic, [TxnOffsetCommitRequestPartition(1, 7)])]
    response = ask(TxnOffsetCommitRequest(name, GROUP, *producer, topics=topics), version)
    assert response.topics[0].partitions[0].error_code == 0
    assert ask(EndTxnRequest(name, *producer, False), 5 if version >= 5 else 3).error_code == 0


def check_describe_transactions(ask: Ask, world: World, version: int) -> None:
    name = f"described-{version}"
    producer_id, _ = begun(ask, world.topic, name)
    known, unknown = ask(DescribeTransactionsRequest([name, "nobody"]), version).transaction_states
    assert (known.transaction_state, known.producer_id) == ("Ongoing", producer_id)
    assert known.topics[0].topic == world.topic
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def check_list_transactions(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    name = f"listed-{version}"
    producer_id, _ = started(ask, name)
    response = ask(ListTransactionsRequest(["Empty"], [producer_id]), version)
    assert [row.transactional_id for row in response.transaction_states] == [name]


CHECKS = {
    "add_partitions_to_txn": check_add_partitions_to_txn,
    "add_offsets_to_txn": check_add_offsets_to_txn,
    "end_txn": check_end_txn,
    "write_txn_markers": check_write_txn_markers,
    "txn_offset_commit": check_txn_offset_commit,
    "describe_transactions": check_describe_transactions,
    "list_transactions": check_list_transactions,
}
