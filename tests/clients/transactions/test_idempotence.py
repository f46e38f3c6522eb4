"""A retried batch is stored once, a gap is refused, a stale producer is fenced; all of it across restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.produce import PartitionProduceResponse
from support.wire_client import WireClient, batch_of, produce_request, records_in


def kill_and_start(cluster: Cluster) -> None:
    cluster.kill()
    cluster.start()


RESTARTS: dict[str, Callable[[Cluster], object]] = {
    "running on": lambda _: None,
    "restarted": Cluster.restart,
    "killed": kill_and_start,
}


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A broker of this module's own, because it is killed."""
    with Cluster() as running:
        yield running


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """The broker, up again whatever the test before did to it."""
    return own_cluster.start()


def send(
    cluster: Cluster, topic: str, producer_id: int, sequence: int, count: int = 2, epoch: int = 0
) -> PartitionProduceResponse:
    batch = batch_of(
        [b"%d" % (sequence + number) for number in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    with WireClient(cluster.bootstrap_servers) as wire:
        return wire.produce(topic, batch)


def new_producer_id(cluster: Cluster) -> int:
    with WireClient(cluster.bootstrap_servers) as wire:
        return wire.new_producer_id()


def values(cluster: Cluster, topic: str) -> list[int]:
    with WireClient(cluster.bootstrap_servers) as wire:
        return [int(record.value or b"") for record in records_in(wire.fetch(topic, 0).records)]


def a_duplicate_gets_the_first_offset_again(cluster: Cluster) -> Iterator[None]:
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    first = [send(cluster, topic, producer_id, sequence).base_offset for sequence in range(0, 10, 2)]
    assert first == [0, 2, 4, 6, 8]
    yield
    for _ in range(2):
        again = send(cluster, topic, producer_id, 8)
        assert (again.error_code, again.base_offset) == (0, 8)
    assert send(cluster, topic, producer_id, 10).base_offset == 10
    assert values(cluster, topic) == list(range(12))


def each_of_the_last_five_batches_is_known_again(cluster: Cluster) -> Iterator[None]:
    """A client with five requests in flight repeats all of them, the oldest first."""
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    for sequence in range(0, 10, 2):
        assert send(cluster, topic, producer_id, sequence).error_code == 0
    yield
    answers = [send(cluster, topic, producer_id, sequence) for sequence in range(0, 10, 2)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [
        (0, offset) for offset in range(0, 10, 2)
    ]
    assert values(cluster, topic) == list(range(10))


def a_gap_is_refused(cluster: Cluster) -> Iterator[None]:
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    assert send(cluster, topic, producer_id, 0).error_code == 0
    yield
    assert send(cluster, topic, producer_id, 5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(cluster, topic, producer_id, 1, count=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(cluster, topic, producer_id, 2).error_code == 0
    assert values(cluster, topic) == [0, 1, 2, 3]


def an_old_epoch_is_fenced(cluster: Cluster) -> Iterator[None]:
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    assert send(cluster, topic, producer_id, 0, epoch=0).error_code == 0
    assert send(cluster, topic, producer_id, 7, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(cluster, topic, producer_id, 0, epoch=1).error_code == 0
    yield
    assert send(cluster, topic, producer_id, 2, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(cluster, topic, producer_id, 2, epoch=1).error_code == 0
    assert len(values(cluster, topic)) == 6


def a_batch_older_than_the_last_five_is_found_in_the_log(cluster: Cluster) -> Iterator[None]:
    """Its client got answers to later batches but not to this one, and then lost the answers to five more."""
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    for sequence in range(0, 18, 2):
        assert send(cluster, topic, producer_id, sequence).error_code == 0
    yield
    for sequence in (0, 4, 0, 16):
        again = send(cluster, topic, producer_id, sequence)
        assert (again.error_code, again.base_offset) == (0, sequence)
    assert send(cluster, topic, producer_id, 1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(cluster, topic) == list(range(18))


def producer_ids_are_never_given_twice(cluster: Cluster) -> Iterator[None]:
    before = {new_producer_id(cluster) for _ in range(5)}
    yield
    assert before.isdisjoint({new_producer_id(cluster) for _ in range(5)})


def active_producers_are_described(cluster: Cluster) -> Iterator[None]:
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    send(cluster, topic, producer_id, 0, count=5, epoch=3)
    yield
    with WireClient(cluster.bootstrap_servers) as wire:
        answer = wire.call(DescribeProducersRequest([TopicRequest(topic, [0])]), 0)
    (producer,) = answer.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 3, 4)


SCENARIOS = (
    a_duplicate_gets_the_first_offset_again,
    each_of_the_last_five_batches_is_known_again,
    a_gap_is_refused,
    an_old_epoch_is_fenced,
    a_batch_older_than_the_last_five_is_found_in_the_log,
    active_producers_are_described,
    producer_ids_are_never_given_twice,
)


@pytest.mark.parametrize("what", RESTARTS)
def test_what_is_known_of_producers_outlives_a_restart(cluster: Cluster, what: str) -> None:
    """Each scenario stops where the broker is restarted: once for all of them."""
    under_way = [scenario(cluster) for scenario in SCENARIOS]
    for each in under_way:
        next(each)
    RESTARTS[what](cluster)
    for each in under_way:
        assert next(each, "finished") == "finished"


def test_sequences_go_round(cluster: Cluster) -> None:
    topic, producer_id = cluster.create_topic(), new_producer_id(cluster)
    largest = 2**31 - 1
    assert send(cluster, topic, producer_id, largest - 1, count=3).error_code == 0
    assert send(cluster, topic, producer_id, largest - 1, count=3).base_offset == 0
    assert send(cluster, topic, producer_id, 1, count=1).base_offset == 3
    assert send(cluster, topic, producer_id, 3, count=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_partitions_count_on_their_own(cluster: Cluster) -> None:
    topic, producer_id = cluster.create_topic(partitions=2), new_producer_id(cluster)
    batch = batch_of([b"0"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    with WireClient(cluster.bootstrap_servers) as wire:
        for partition in (0, 1, 0):
            answer = wire.call(produce_request(topic, batch, partition=partition), 9)
            assert answer.responses[0].partition_responses[0].base_offset == 0


def test_a_block_of_producer_ids_is_followed_by_another(cluster: Cluster) -> None:
    with WireClient(cluster.bootstrap_servers) as wire:
        taken = [wire.new_producer_id() for _ in range(1500)]
    assert len(set(taken)) == 1500


def test_an_idempotent_client_loses_and_repeats_nothing_over_kills(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 50,
            "log_level": 0,
        }
    )
    failures: list[Any] = []
    for number in range(3000):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
        if number % 1000 == 999:
            cluster.kill()
            cluster.start()
    assert producer.flush(30) == 0
    assert not failures
    assert values(cluster, topic) == list(range(3000))
