"""What producers are answered, in every state of their transactional id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.contract import ProducerIdentity
from penstock.core.transaction.contract import TransactionSettings
from penstock.core.transaction.decisions import PARTITIONS_BYTES_MAX
from penstock.core.transaction.listing import TransactionFilter
from penstock.core.transaction.states import TransactionState
from penstock.core.transaction.transaction import EPOCH_LAST, EPOCH_MAX
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.ids import TopicPartition
from penstock.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue
from support.worlds.transaction_world import TransactionWorld

ID = "copy"
P = TopicPartition("t", 0)
Q = TopicPartition("u", 3)
V1, V2 = 4, 5


def begun(world: TransactionWorld, version: int = V2) -> ProducerIdentity:
    producer = world.started(ID)
    assert world.add(ID, producer, [P, Q], 2 if version >= V2 else 0) == ErrorCode.NONE
    return producer


def at_epoch(world: TransactionWorld, epoch: int) -> ProducerIdentity:
    producer = world.started(ID)
    world.force(replace(world.transaction(ID), producer_epoch=epoch))
    return producer._replace(producer_epoch=epoch)


def state(world: TransactionWorld) -> TransactionState:
    return world.transaction(ID).state


def identity(response: object) -> tuple[int, int]:
    return response.producer_id, response.producer_epoch  # type: ignore[attr-defined]


# InitProducerId.


def test_a_new_id_gets_a_producer_id_and_epoch_zero() -> None:
    world = TransactionWorld()
    response = world.init(ID)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1000, 0)
    assert state(world) is TransactionState.EMPTY


def test_starting_again_raises_the_epoch() -> None:
    world = TransactionWorld()
    world.started(ID)
    assert world.started(ID) == (1000, 1)


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_000, ErrorCode.NONE),
        (1, ErrorCode.NONE),
    ],
)
def test_timeouts_are_checked_against_the_longest_allowed(timeout_ms: int, error: ErrorCode) -> None:
    assert TransactionWorld().init(ID, timeout_ms=timeout_ms).error_code == error


@pytest.mark.parametrize("named", [ProducerIdentity(5, -1), ProducerIdentity(-1, 5)])
def test_a_producer_names_itself_whole_or_not_at_all(named: ProducerIdentity) -> None:
    assert TransactionWorld().init(ID, named).error_code == ErrorCode.INVALID_REQUEST


def test_an_id_without_a_name_is_refused() -> None:
    assert TransactionWorld().init("").error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_that_names_itself_continues_in_the_next_epoch_and_may_retry() -> None:
    world = TransactionWorld()
    producer = world.started(ID)
    assert identity(world.init(ID, producer)) == (1000, 1)
    assert identity(world.init(ID, producer)) == (1000, 1), "the answer was lost, and is given again"
    assert identity(world.init(ID, ProducerIdentity(1000, 1))) == (1000, 2)
    assert world.init(ID, producer).error_code == ErrorCode.PRODUCER_FENCED
    assert world.init(ID, producer, version=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_successor_forgets_what_its_predecessor_may_repeat() -> None:
    world = TransactionWorld()
    producer = world.started(ID)
    world.init(ID, producer)
    world.started(ID)
    assert world.init(ID, producer).error_code == ErrorCode.PRODUCER_FENCED


def test_a_producer_that_names_itself_is_new_after_its_id_expired() -> None:
    world = TransactionWorld()
    assert identity(world.init(ID, ProducerIdentity(77, 12))) == (1000, 0)


def test_a_start_aborts_what_is_open_and_has_to_come_again() -> None:
    world = TransactionWorld()
    begun(world)
    assert world.init(ID).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert state(world) is TransactionState.PREPARE_ABORT
    [markers] = world.markers
    assert (markers.committed, markers.producer_epoch, markers.partitions) == (False, 1, (P, Q))
    assert world.init(ID).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_all_markers()
    assert state(world) is TransactionState.COMPLETE_ABORT
    assert identity(world.init(ID)) == (1000, 2)


def test_a_stale_producer_cannot_abort_what_its_successor_began() -> None:
    world = TransactionWorld()
    stale = world.started(ID)
    begun(world)
    assert world.init(ID, stale).error_code == ErrorCode.PRODUCER_FENCED
    assert state(world) is TransactionState.ONGOING


def test_after_the_last_epoch_a_start_gets_a_new_producer_id() -> None:
    world = TransactionWorld()
    last = at_epoch(world, EPOCH_LAST)
    assert identity(world.init(ID)) == (1001, 0)
    assert world.add(ID, last, [P]) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_after_the_last_epoch_a_producer_that_names_itself_may_ask_twice() -> None:
    world = TransactionWorld()
    last = at_epoch(world, EPOCH_LAST)
    assert identity(world.init(ID, last)) == (1001, 0)
    assert identity(world.init(ID, last)) == (1001, 0)


def test_a_producer_aborted_in_its_last_epoch_starts_with_a_new_id() -> None:
    world = TransactionWorld()
    last = at_epoch(world, EPOCH_LAST)
    assert world.add(ID, last, [P]) == ErrorCode.NONE
    world.init(ID)
    world.write_all_markers()
    assert world.transaction(ID).producer_epoch == EPOCH_MAX
    again = world.init(ID, last)
    assert again.producer_id > last.producer_id
    assert again.producer_epoch == 0


# Partitions.


def test_partitions_begin_a_transaction_and_are_kept_in_their_order() -> None:
    world = TransactionWorld()
    producer = world.started(ID)
    assert world.add(ID, producer, [Q]) == ErrorCode.NONE
    world.advance(10)
    assert world.add(ID, producer, [P]) == ErrorCode.NONE
    transaction = world.transaction(ID)
    assert [*transaction.partitions] == [Q, P]
    assert (transaction.started_ms, transaction.updated_ms) == (1_000_000, 1_000_010)


def test_partitions_that_are_there_cost_no_record() -> None:
    world = TransactionWorld()
    producer = begun(world)
    records = len(world.log)
    assert world.add(ID, producer, [P]) == ErrorCode.NONE
    assert len(world.log) == records


def test_partitions_of_strangers_are_refused() -> None:
    world = TransactionWorld()
    assert world.add(ID, ProducerIdentity(1000, 0), [P]) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = world.started(ID)
    assert world.add("", producer, [P]) == ErrorCode.INVALID_REQUEST
    assert world.add(ID, ProducerIdentity(9, 0), [P]) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add(ID, ProducerIdentity(1000, 1), [P]) == ErrorCode.PRODUCER_FENCED
    assert world.add(ID, ProducerIdentity(1000, -1), [P]) == ErrorCode.PRODUCER_FENCED


def test_no_partition_joins_what_is_decided() -> None:
    world = TransactionWorld()
    producer = begun(world)
    response = world.end(ID, producer, commit=True)
    assert world.add(ID, ProducerIdentity(*identity(response)), [P]) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_all_markers()
    assert world.add(ID, ProducerIdentity(*identity(response)), [P]) == ErrorCode.NONE


def test_brokers_verify_partitions() -> None:
    world = TransactionWorld()
    producer = world.started(ID)
    other = TopicPartition("t", 1)

    def verify(who: ProducerIdentity = producer) -> list[ErrorCode]:
        return [*world.shard.verify_partitions(ID, who, [P, other]).values()]

    assert verify() == [ErrorCode.TRANSACTION_ABORTABLE] * 2
    world.add(ID, producer, [P])
    assert verify() == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert verify(ProducerIdentity(1000, 7)) == [ErrorCode.PRODUCER_FENCED] * 2
    assert verify(ProducerIdentity(8, 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert world.shard.verify_partitions("?", producer, [P]) == {P: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert world.shard.verify_partitions("", producer, [P]) == {P: ErrorCode.INVALID_REQUEST}
    world.end(ID, producer, commit=True, version=V1)
    assert verify() == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    world.write_all_markers()
    assert verify() == [ErrorCode.TRANSACTION_ABORTABLE] * 2


# EndTxn.


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_of_version_1_keeps_the_epoch_and_may_be_repeated(commit: bool) -> None:
    world = TransactionWorld(cluster_version=0)
    producer = begun(world, V1)
    assert world.end(ID, producer, commit, V1) == (0, 0, -1, -1)
    assert world.end(ID, producer, commit, V1).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    [markers] = world.markers
    assert (markers.producer_epoch, markers.committed) == (0, commit)
    world.write_all_markers()
    assert world.end(ID, producer, commit, V1).error_code == ErrorCode.NONE
    assert world.end(ID, producer, not commit, V1).error_code == ErrorCode.INVALID_TXN_STATE
    assert world.transaction(ID).partitions == {}


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_of_version_2_raises_the_epoch_and_may_be_repeated(commit: bool) -> None:
    world = TransactionWorld()
    producer = begun(world)
    assert world.end(ID, producer, commit) == (0, 0, 1000, 1)
    assert world.end(ID, producer, commit).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    [markers] = world.markers
    assert (markers.producer_epoch, markers.committed) == (1, commit)
    world.write_all_markers()
    assert world.end(ID, producer, commit) == (0, 0, 1000, 1)
    # A client repeats what it sent. One that commits was aborted by its coordinator meanwhile.
    error = ErrorCode.INVALID_TXN_STATE if commit else ErrorCode.PRODUCER_FENCED
    assert world.end(ID, producer, not commit).error_code == error


def test_the_older_name_of_fencing_goes_to_older_clients() -> None:
    world = TransactionWorld()
    stale = world.started(ID)
    world.started(ID)
    assert world.end(ID, stale, commit=True, version=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.end(ID, stale, commit=True, version=2).error_code == ErrorCode.PRODUCER_FENCED
    assert world.end(ID, stale, commit=True, version=V2).error_code == ErrorCode.PRODUCER_FENCED


def test_strangers_end_nothing() -> None:
    world = TransactionWorld()
    for version in (V1, V2):
        unknown = world.end("?", ProducerIdentity(1, 1), commit=True, version=version)
        assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        nameless = world.end("", ProducerIdentity(1, 1), commit=True, version=version)
        assert nameless.error_code == ErrorCode.INVALID_REQUEST
    begun(world)
    for version in (V1, V2):
        other = world.end(ID, ProducerIdentity(1, 0), commit=True, version=version)
        assert other.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_version_1_ends_only_what_has_begun() -> None:
    world = TransactionWorld()
    producer = world.started(ID)
    for commit in (True, False):
        assert world.end(ID, producer, commit, V1).error_code == ErrorCode.INVALID_TXN_STATE


def test_version_2_may_abort_where_nothing_is_open() -> None:
    world = TransactionWorld()
    producer = world.started(ID)
    assert world.end(ID, producer, commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    assert world.end(ID, producer, commit=False) == (0, 0, 1000, 1)
    assert state(world) is TransactionState.COMPLETE_ABORT, "there is no partition to wait for"
    assert world.markers == []
    assert world.end(ID, ProducerIdentity(1000, 1), commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    assert world.end(ID, ProducerIdentity(1000, 1), commit=False) == (0, 0, 1000, 2)


def test_a_stale_client_of_version_2_is_not_taken_for_one_that_repeats_itself() -> None:
    world = TransactionWorld()
    stale = world.started(ID)
    producer = begun(world, V1)
    world.end(ID, producer, commit=True, version=V1)
    world.write_all_markers()
    assert world.end(ID, stale, commit=True).error_code == ErrorCode.PRODUCER_FENCED


def test_the_end_of_the_last_epoch_brings_a_new_producer_id() -> None:
    world = TransactionWorld()
    last = at_epoch(world, EPOCH_LAST)
    world.add(ID, last, [P])
    assert world.end(ID, last, commit=True) == (0, 0, 1001, 0)
    [markers] = world.markers
    assert (markers.producer_id, markers.producer_epoch) == (1000, EPOCH_MAX)
    assert world.add(ID, ProducerIdentity(1001, 0), [P]) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.fail_over()
    world.write_all_markers()
    assert world.transaction(ID).identity == (1001, 0)
    assert world.end(ID, last, commit=True) == (0, 0, 1001, 0), "known again after a failover, too"
    assert identity(world.init(ID, last)) == (1001, 0)
    assert world.add(ID, ProducerIdentity(1001, 0), [P]) == ErrorCode.NONE


def test_a_producer_timed_out_in_its_last_epoch_continues_with_a_new_id() -> None:
    world = TransactionWorld()
    last = at_epoch(world, EPOCH_LAST)
    world.add(ID, last, [P])
    world.advance(60_001)
    world.write_all_markers()
    assert world.transaction(ID).producer_epoch == EPOCH_MAX
    assert world.end(ID, last, commit=False) == (0, 0, 1001, 0)
    assert world.end(ID, last, commit=False) == (0, 0, 1001, 0)


# Markers.


def test_a_transaction_is_complete_with_its_last_marker() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.end(ID, producer, commit=True)
    [markers] = world.markers
    world.write_markers(markers, [P])
    world.write_markers(markers, [P])
    assert state(world) is TransactionState.PREPARE_COMMIT
    world.write_markers(markers, [Q])
    assert state(world) is TransactionState.COMPLETE_COMMIT


def test_late_reports_of_markers_mean_nothing() -> None:
    world = TransactionWorld()
    producer = begun(world)
    response = world.end(ID, producer, commit=True)
    [first] = world.markers
    world.write_all_markers()
    following = ProducerIdentity(*identity(response))
    world.add(ID, following, [P, Q])
    world.end(ID, following, commit=False)
    world.write_markers(first)
    assert state(world) is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_finishes_what_was_decided(commit: bool) -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.end(ID, producer, commit)
    world.write_markers(world.markers[0], [P])
    world.fail_over()
    [markers] = world.markers
    assert (markers.committed, markers.coordinator_epoch, markers.partitions) == (commit, 1, (P, Q))
    world.write_all_markers()
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    assert state(world) is done
    assert world.end(ID, producer, commit) == (0, 0, 1000, 1)


def test_a_fence_that_was_left_halfway_is_finished_by_the_next_coordinator() -> None:
    world = TransactionWorld()
    begun(world)
    world.force(replace(world.transaction(ID), state=TransactionState.PREPARE_EPOCH_FENCE))
    world.fail_over()
    world.write_all_markers()
    assert state(world) is TransactionState.COMPLETE_ABORT


# Time.


@pytest.mark.parametrize("cluster_version", [0, 1, 2])
def test_a_transaction_that_stays_open_too_long_is_aborted_and_its_producer_shut_out(cluster_version: int) -> None:
    world = TransactionWorld(cluster_version=cluster_version)
    producer = begun(world, V1)
    world.advance(60_000)
    assert state(world) is TransactionState.ONGOING
    world.advance(1)
    assert state(world) is TransactionState.PREPARE_ABORT
    [markers] = world.markers
    assert (markers.committed, markers.producer_epoch) == (False, 1)
    world.write_all_markers()
    assert world.end(ID, producer, commit=True, version=V1).error_code == ErrorCode.PRODUCER_FENCED
    assert world.add(ID, producer, [P]) == ErrorCode.PRODUCER_FENCED
    assert world.timers == {}


def test_kafka_20785_a_commit_of_version_2_after_a_timeout_abort_is_fenced() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.advance(60_001)
    world.write_all_markers()
    assert world.end(ID, producer, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    # With an abort the producer gets its next epoch, and may continue.
    assert world.end(ID, producer, commit=False) == (0, 0, 1000, 1)


def test_kafka_20785_a_commit_of_the_last_epoch_after_a_timeout_abort_is_fenced() -> None:
    world = TransactionWorld()
    producer = at_epoch(world, EPOCH_LAST)
    assert world.add(ID, producer, [P]) == ErrorCode.NONE
    world.advance(60_001)
    world.write_all_markers()
    assert world.end(ID, producer, commit=True).error_code == ErrorCode.PRODUCER_FENCED


def test_kafka_20785_also_after_a_failover() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.advance(60_001)
    world.write_all_markers()
    world.fail_over()
    assert world.end(ID, producer, commit=True).error_code == ErrorCode.PRODUCER_FENCED


def test_adding_partitions_does_not_push_the_timeout_back() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.advance(59_000)
    world.add(ID, producer, [TopicPartition("t", 9)])
    world.advance(1_001)
    assert state(world) is TransactionState.PREPARE_ABORT


def test_after_a_failover_a_transaction_has_its_time_once_more() -> None:
    """When it began is told by the clock of another broker, which may be wrong by any amount."""
    world = TransactionWorld()
    begun(world)
    world.advance(30_000)
    world.fail_over()
    world.advance(60_000)
    assert state(world) is TransactionState.ONGOING
    world.advance(1)
    assert state(world) is TransactionState.PREPARE_ABORT


def test_a_decided_transaction_does_not_time_out() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.end(ID, producer, commit=True)
    world.advance(10_000_000)
    assert state(world) is TransactionState.PREPARE_COMMIT


def test_unused_ids_are_forgotten() -> None:
    world = TransactionWorld(TransactionSettings(transactional_id_expiration_ms=3_600_000))
    world.started("idle")
    producer = begun(world)
    world.end(ID, producer, commit=True)
    world.advance(3_599_999)
    world.expire()
    assert {row.transactional_id for row in world.shard.listing(TransactionFilter(), world.now_ms)} == {"idle", ID}
    world.advance(1)
    world.expire()
    assert {row.transactional_id for row in world.shard.listing(TransactionFilter(), world.now_ms)} == {ID}
    assert world.shard.describe("idle").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.replayed()._transactions == world.shard._transactions


# Administrators.


def test_describe_shows_the_open_transaction() -> None:
    world = TransactionWorld()
    begun(world)
    row = world.shard.describe(ID)
    assert (row.error_code, row.transaction_state, row.producer_id, row.producer_epoch) == (0, "Ongoing", 1000, 0)
    assert (row.transaction_timeout_ms, row.transaction_start_time_ms) == (60_000, 1_000_000)
    assert [(topic.topic, [*topic.partitions]) for topic in row.topics] == [("t", [0]), ("u", [3])]
    assert world.shard.describe("").error_code == ErrorCode.INVALID_REQUEST
    assert world.shard.describe("?").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (TransactionFilter(), {"open", "idle"}),
        (TransactionFilter(states=frozenset([TransactionState.ONGOING])), {"open"}),
        (TransactionFilter(states=frozenset()), set()),
        (TransactionFilter(producer_ids=frozenset([1000])), {"open"}),
        (TransactionFilter(longer_than_ms=500), {"open", "idle"}),
        (TransactionFilter(longer_than_ms=1000, states=frozenset([TransactionState.ONGOING])), set()),
        (TransactionFilter(matches=lambda name: name.startswith("i")), {"idle"}),
    ],
)
def test_lists_are_filtered(wanted: TransactionFilter, found: set[str]) -> None:
    world = TransactionWorld()
    world.add("open", world.started("open"), [P])
    world.started("idle")
    world.advance(1000)
    assert {row.transactional_id for row in world.shard.listing(wanted, world.now_ms)} == found


# The log.


@pytest.mark.parametrize(("cluster_version", "record_version"), [(0, 0), (1, 1), (2, 1)])
def test_records_are_of_a_version_that_the_cluster_reads(cluster_version: int, record_version: int) -> None:
    world = TransactionWorld(cluster_version=cluster_version)
    seen: list[int] = []
    world.observer = lambda effects: seen.extend(record.value_version for record in effects.records)
    producer = begun(world, V1)
    world.end(ID, producer, commit=True, version=V1)
    world.write_all_markers()
    assert seen == [record_version] * 4
    assert world.replayed()._transactions == world.shard._transactions


def test_a_state_of_a_later_version_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="unknown state 9"):
        TransactionWorld().shard.replay(TransactionLogKey(ID), TransactionLogValue(transaction_status=9))


def test_a_transaction_has_no_more_partitions_than_its_end_can_be_recorded_with() -> None:
    world = TransactionWorld()
    producer = begun(world)
    room = PARTITIONS_BYTES_MAX // 4
    many = [TopicPartition("t", number) for number in range(room - 100)]
    assert world.add(ID, producer, many) == ErrorCode.NONE
    more = [TopicPartition("more", number) for number in range(200)]
    assert world.add(ID, producer, more) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(world.transaction(ID).partitions) == len(many) + 1
    assert world.end(ID, producer, commit=True).error_code == ErrorCode.NONE
