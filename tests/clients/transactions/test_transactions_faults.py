"""What may go wrong with a transaction: repeated and missing batches, stale producers, late writes, coordinators."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from support.chaos_cluster import ChaosCluster
from support.wire_client import WireClient, records_in
from support.wire_transactions import WireProducer

LATEST = -1
READ_COMMITTED = 1
TIMEOUT_S = 30
ROUNDS = 4
PARTITIONS = 3


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster({"transaction.state.log.num.partitions": "2"}) as running:
        yield running


def stable_offset(wire: WireClient, topic: str, partition: int = 0) -> int:
    offset: int = wire.list_offset(topic, LATEST, partition=partition, isolation_level=READ_COMMITTED).offset
    return offset


def end_offset(wire: WireClient, topic: str) -> int:
    offset: int = wire.list_offset(topic, LATEST).offset
    return offset


def eventually_stable(wire: WireClient, topic: str) -> None:
    """No transaction is open any more."""
    deadline = time.monotonic() + TIMEOUT_S
    while stable_offset(wire, topic) != end_offset(wire, topic):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.05)


def producer(wire: WireClient, name: str, version: int) -> WireProducer:
    started = WireProducer(wire, name, version)
    started.start()
    return started


def begin(writer: WireProducer, topic: str) -> None:
    if writer.version == 1:
        assert writer.add(topic) is ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_fault_19_a_repeated_batch_is_stored_once_also_across_a_restart_and_a_gap_is_refused(version: int) -> None:
    with Cluster({"transaction.state.log.num.partitions": "2"}) as cluster:
        topic = cluster.create_topic()
        with WireClient(cluster.bootstrap_servers) as wire:
            writer = producer(wire, "repeats", version)
            begin(writer, topic)
            assert writer.write(topic, b"0", sequence=0).base_offset == 0
            assert writer.write(topic, b"1", sequence=1).base_offset == 1
            assert writer.write(topic, b"0", sequence=0).base_offset == 0
            assert writer.write(topic, b"gap", sequence=5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        cluster.kill()
        cluster.start()
        with WireClient(cluster.bootstrap_servers) as wire:
            writer.wire = wire
            assert writer.write(topic, b"1", sequence=1).base_offset == 1
            assert writer.write(topic, b"gap", sequence=5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert writer.write(topic, b"2", sequence=2).base_offset == 2
            assert writer.end(commit=True) is ErrorCode.NONE
            eventually_stable(wire, topic)
            found = wire.fetch(topic, 0, isolation_level=READ_COMMITTED)
            assert [record.value for record in records_in(found.records)[:3]] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", [1, 2])
def test_fault_20_a_producer_that_was_replaced_writes_and_decides_nothing(node: Cluster, version: int) -> None:
    topic = node.create_topic()
    with WireClient(node.bootstrap_servers) as wire:
        old = producer(wire, f"zombie-{version}", version)
        begin(old, topic)
        assert old.write(topic, b"of the old").error_code == ErrorCode.NONE
        new = producer(wire, f"zombie-{version}", version)
        eventually_stable(wire, topic)
        end = end_offset(wire, topic)
        assert old.write(topic, b"too late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert old.end(commit=True) is ErrorCode.PRODUCER_FENCED
        assert end_offset(wire, topic) == end
        begin(new, topic)
        assert old.write(topic, b"into the new one's").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert old.end(commit=True) is ErrorCode.PRODUCER_FENCED
        assert new.write(topic, b"of the new").error_code == ErrorCode.NONE
        assert new.end(commit=True) is ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("next_one", [False, True])
def test_fault_21_a_write_that_was_delayed_until_after_the_abort_is_refused(
    node: Cluster, version: int, next_one: bool
) -> None:
    topic, other = node.create_topic(), node.create_topic()
    with WireClient(node.bootstrap_servers) as wire:
        writer = producer(wire, f"late-{version}-{next_one}", version)
        begin(writer, topic)
        assert writer.write(topic, b"in time").error_code == ErrorCode.NONE
        late = WireProducer(wire, writer.name, version, writer.producer_id, writer.producer_epoch)
        assert writer.end(commit=False) is ErrorCode.NONE
        eventually_stable(wire, topic)
        if next_one:
            # The next transaction is open, but not on the partition that the late write is for.
            begin(writer, other)
            while (answer := writer.write(other, b"next")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
                # Clients send it again: the coordinator has yet to note that every marker is written.
                continue
            assert answer.error_code == ErrorCode.NONE
        end = end_offset(wire, topic)
        refused = ErrorCode.NOT_ENOUGH_REPLICAS
        while refused is ErrorCode.NOT_ENOUGH_REPLICAS:
            refused = ErrorCode(late.write(topic, b"late", sequence=1).error_code)
        assert refused in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert (end_offset(wire, topic), stable_offset(wire, topic)) == (end, end)
        assert writer.end(commit=next_one) in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fault_22_a_coordinator_killed_in_the_middle_of_a_commit_leaves_all_or_nothing() -> None:
    with ChaosCluster() as chaos:
        topic = chaos.cluster.create_topic(partitions=PARTITIONS)
        writer = Producer(
            {"bootstrap.servers": chaos.servers, "transactional.id": "victim", "transaction.timeout.ms": 20_000}
        )
        writer.init_transactions(TIMEOUT_S)
        for number in range(ROUNDS):
            chaos.wait_healthy((topic,))
            with chaos.wire(chaos.running()[0]) as wire:
                coordinator = coordinator_of(wire, "victim")
            writer.begin_transaction()
            for partition in range(PARTITIONS):
                writer.produce(topic, b"%d" % number, partition=partition)
            writer.flush(TIMEOUT_S)
            # Sometimes before the decision, sometimes between the decision and the markers.
            killing = threading.Timer(0.004 * number, chaos.kill, [coordinator])
            killing.start()
            writer.commit_transaction(2 * TIMEOUT_S)
            killing.join()
            expected = [b"%d" % one for one in range(number + 1)]
            survivor = chaos.running()[0]
            wait_for_values(chaos, topic, expected, survivor)
            chaos.start(coordinator)


def coordinator_of(wire: WireClient, name: str) -> int:
    from penstock.wire.messages.find_coordinator import FindCoordinatorRequest

    found: int = wire.call(FindCoordinatorRequest("", 1, [name]), 6).coordinators[0].node_id
    return found


def wait_for_values(chaos: ChaosCluster, topic: str, expected: list[bytes], via: int) -> None:
    """Every partition shows the same committed records, and no more."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = []
        for partition in range(PARTITIONS):
            leader = chaos.partition(topic, partition, via=via).leader
            if leader not in chaos.running():
                break
            with chaos.wire(leader) as wire:
                data = wire.fetch(topic, 0, partition=partition, isolation_level=READ_COMMITTED)
                found.append([one.value for one in records_in(data.records) if not is_marker(one.key)])
        if found == [expected] * PARTITIONS:
            return
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(0.1)


def is_marker(key: bytes | None) -> bool:
    return key is not None
