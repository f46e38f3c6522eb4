"""What consumers rely on: whole batches, limits, long polls, resets, isolation."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.wire_client import FETCH_VERSION, WireClient, batch_of, fetch_request, produce_request, records_in

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def consumer(servers: str, **settings: Any) -> Consumer:
    fixed = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    return Consumer({**fixed, **{name.replace("_", "."): value for name, value in settings.items()}})


@pytest.mark.parametrize("codec", CODECS)
def test_a_fetch_in_mid_batch_gets_the_whole_batch(
    penstock_cluster: Cluster, penstock_topic: str, wire: WireClient, codec: str
) -> None:
    wire.produce(penstock_topic, batch_of([b"0", b"1", b"2"], compression=CODECS[codec]))
    wire.produce(penstock_topic, batch_of([b"3", b"4", b"5"], compression=CODECS[codec]))
    for offset, expected in ((1, [0, 1, 2, 3, 4, 5]), (2, [0, 1, 2, 3, 4, 5]), (4, [3, 4, 5]), (6, [])):
        found = records_in(wire.fetch(penstock_topic, offset).records)
        assert [record.offset for record in found] == expected
    reader = consumer(penstock_cluster.bootstrap_servers)
    reader.assign([TopicPartition(penstock_topic, 0, 4)])
    assert [message.offset() for message in reader.consume(2, 10)] == [4, 5]
    reader.close()


def test_one_batch_comes_however_small_the_limits(penstock_topic: str, wire: WireClient) -> None:
    for value in (b"x" * 5000, b"y" * 5000):
        wire.produce(penstock_topic, batch_of([value]))
    for limits in ({"max_bytes": 10}, {"partition_max_bytes": 10}, {"max_bytes": 0, "partition_max_bytes": 0}):
        found = records_in(wire.fetch(penstock_topic, 0, **limits).records)
        assert [record.value for record in found] == [b"x" * 5000], limits


def test_max_bytes_bounds_the_whole_response(penstock_cluster: Cluster, wire: WireClient) -> None:
    topic = penstock_cluster.create_topic(partitions=5)
    for partition in range(5):
        wire.produce(topic, batch_of([b"x" * 1000]), partition=partition)
    rows = [FetchPartition(partition, fetch_offset=0, partition_max_bytes=10_000) for partition in range(5)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2500, topics=[FetchTopic(topic, partitions=rows)])
    response = wire.call(request, FETCH_VERSION)
    sizes = [len(row.records or b"") for row in response.responses[0].partitions]
    assert 0 < sum(sizes) <= 2500
    assert sum(1 for size in sizes if size) == 2


def test_partition_max_bytes_bounds_a_partition(penstock_topic: str, wire: WireClient) -> None:
    for _ in range(10):
        wire.produce(penstock_topic, batch_of([b"x" * 1000]))
    found = wire.fetch(penstock_topic, 0, partition_max_bytes=3500)
    assert len(records_in(found.records)) == 3


def test_a_record_ends_a_long_poll_at_once(penstock_topic: str, servers: str, wire: WireClient) -> None:
    delays = []
    with WireClient(servers) as producer:
        for round_number in range(10):
            request = fetch_request(penstock_topic, round_number, max_wait_ms=5000)
            sent = wire.send(request, FETCH_VERSION)
            time.sleep(0.02)
            started = time.perf_counter()
            producer.produce(penstock_topic, batch_of([b"now"]))
            received, response = wire.receive(request, FETCH_VERSION)
            delays.append(time.perf_counter() - started)
            assert received == sent
            assert len(records_in(response.responses[0].partitions[0].records)) == 1
    # Most of them: on a busy machine some processes wait for a core.
    assert sorted(delays)[5] < 1, delays


@pytest.mark.parametrize("settings", [{}, {"fetch_min_bytes": 1, "fetch_wait_max_ms": 10_000}], ids=["default", "long"])
def test_a_consumer_gets_a_record_before_its_fetch_is_over(
    penstock_topic: str, servers: str, wire: WireClient, settings: dict[str, Any]
) -> None:
    wire.produce(penstock_topic, batch_of([b"first"]))
    reader = consumer(servers, **settings)
    reader.assign([TopicPartition(penstock_topic, 0, 0)])
    assert len(reader.consume(1, 10)) == 1
    delays = []
    for _ in range(5):
        time.sleep(0.05)
        started = time.perf_counter()
        wire.produce(penstock_topic, batch_of([b"next"]))
        assert len(reader.consume(1, 10)) == 1
        delays.append(time.perf_counter() - started)
    reader.close()
    assert sorted(delays)[2] < 0.4, delays


def test_a_fetch_waits_for_min_bytes_and_no_longer_than_it_said(penstock_topic: str, wire: WireClient) -> None:
    wire.produce(penstock_topic, batch_of([b"x" * 100]))
    started = time.perf_counter()
    answer = wire.fetch(penstock_topic, 0, min_bytes=1_000_000, max_wait_ms=300)
    assert 0.25 < time.perf_counter() - started < 8
    assert len(records_in(answer.records)) == 1
    started = time.perf_counter()
    assert len(records_in(wire.fetch(penstock_topic, 0, min_bytes=100, max_wait_ms=20_000).records)) == 1
    assert time.perf_counter() - started < 10


def test_min_bytes_adds_up_over_produces(penstock_topic: str, servers: str, wire: WireClient) -> None:
    request = fetch_request(penstock_topic, 0, min_bytes=2500, max_wait_ms=20_000)
    wire.send(request, FETCH_VERSION)
    with WireClient(servers) as producer:
        for _ in range(3):
            producer.produce(penstock_topic, batch_of([b"x" * 1000]))
    _, response = wire.receive(request, FETCH_VERSION)
    assert len(records_in(response.responses[0].partitions[0].records)) == 3


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 4), ("error", None)])
def test_an_offset_out_of_range_is_reset(
    penstock_topic: str, servers: str, wire: WireClient, reset: str, expected: int | None
) -> None:
    wire.produce(penstock_topic, batch_of([b"0", b"1", b"2"]))
    answer = wire.fetch(penstock_topic, 99)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.log_start_offset) == (3, 0)
    reader = consumer(servers, auto_offset_reset=reset)
    reader.assign([TopicPartition(penstock_topic, 0, 99)])
    stop = threading.Event()

    def keep_producing() -> None:
        with WireClient(servers) as producer:
            while not stop.wait(0.1):
                producer.produce(penstock_topic, batch_of([b"more"]))

    writer = threading.Thread(target=keep_producing)
    try:
        if expected is None:
            (message,) = reader.consume(1, 10)
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
            return
        writer.start()
        (message,) = reader.consume(1, 10)
        offset = message.offset()
        assert offset == 0 if expected == 0 else offset is not None and offset >= 3
    finally:
        stop.set()
        if writer.is_alive():
            writer.join()
        reader.close()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_plain_records_are_read_at_both_isolation_levels(
    penstock_topic: str, servers: str, wire: WireClient, isolation: str
) -> None:
    wire.produce(penstock_topic, batch_of([b"a", b"b"]))
    level = 1 if isolation == "read_committed" else 0
    answer = wire.fetch(penstock_topic, 0, isolation_level=level)
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)
    assert len(records_in(answer.records)) == 2
    assert wire.list_offset(penstock_topic, -1, isolation_level=level).offset == 2
    reader = consumer(servers, isolation_level=isolation)
    reader.assign([TopicPartition(penstock_topic, 0, 0)])
    assert [message.value() for message in reader.consume(2, 10)] == [b"a", b"b"]
    reader.close()


def test_a_stale_or_future_leader_epoch_is_an_error(penstock_topic: str, wire: WireClient) -> None:
    wire.produce(penstock_topic, batch_of([b"a"]))
    assert wire.fetch(penstock_topic, 0, current_leader_epoch=0).error_code == 0
    assert wire.fetch(penstock_topic, 0, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_forged_follower_moves_nothing(penstock_topic: str, wire: WireClient) -> None:
    wire.produce(penstock_topic, batch_of([b"a"]))
    request = fetch_request(penstock_topic, 10_000)._replace(replica_id=2)
    answer = wire.call(request, FETCH_VERSION).responses[0].partitions[0]
    assert answer.error_code != 0
    assert wire.fetch(penstock_topic, 0).high_watermark == 1


def test_replies_keep_the_order_of_many_requests_in_flight(penstock_topic: str, wire: WireClient) -> None:
    """Long polls, produces and fetches on one connection are answered in the order they were sent."""
    requests: list[tuple[Any, int, int]] = []
    for number in range(200):
        if number % 20 == 10:
            request: Any = fetch_request(penstock_topic, number * 1000, max_wait_ms=30)
            version = FETCH_VERSION
        else:
            request, version = produce_request(penstock_topic, batch_of([str(number).encode()])), 9
        requests.append((request, version, wire.send(request, version)))
    offsets = []
    for request, version, sent in requests:
        received, response = wire.receive(request, version)
        assert received == sent
        if version == 9:
            offsets.append(response.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(190))
    values = [int(record.value or b"") for record in records_in(wire.fetch(penstock_topic, 0).records)]
    assert values == sorted(values)
    assert len(values) == 190


def test_an_unknown_topic_is_an_error_for_the_consumer(servers: str) -> None:
    reader = consumer(servers)
    with pytest.raises(KafkaException):
        reader.get_watermark_offsets(TopicPartition("no-such-topic-here", 0), timeout=3)
    reader.close()
