"""ListOffsets by timestamp finds the record, not only its batch; across batches, codecs, segments and restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.testing import Cluster
from support.wire_client import WireClient, batch_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


@pytest.fixture
def now() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_record_at_or_after_a_time_is_found_inside_its_batch(
    wire: WireClient, penstock_topic: str, now: int, codec: str
) -> None:
    for timestamps in ([now, now + 10, now + 20], [now + 30, now + 5, now + 40]):
        wire.produce(penstock_topic, batch_of([b""] * 3, timestamps=timestamps, compression=CODECS[codec]))
    expected = {
        0: (0, now),
        now: (0, now),
        now + 1: (1, now + 10),
        now + 11: (2, now + 20),
        now + 21: (3, now + 30),
        now + 31: (5, now + 40),
        now + 41: (-1, -1),
    }
    for timestamp, (offset, found_timestamp) in expected.items():
        answer = wire.list_offset(penstock_topic, timestamp)
        assert (answer.offset, answer.timestamp) == (offset, found_timestamp), timestamp - now


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_timestamp_is_found_with_its_record(
    wire: WireClient, penstock_topic: str, now: int, codec: str
) -> None:
    assert wire.list_offset(penstock_topic, MAX_TIMESTAMP).offset == -1
    compression = CODECS[codec]
    wire.produce(penstock_topic, batch_of([b""] * 3, timestamps=[now, now + 50, now + 20], compression=compression))
    wire.produce(penstock_topic, batch_of([b""] * 2, timestamps=[now + 30, now + 40], compression=compression))
    answer = wire.list_offset(penstock_topic, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp) == (1, now + 50)


def test_ends_follow_deletes(wire: WireClient, penstock_cluster: Cluster, penstock_topic: str) -> None:
    wire.produce(penstock_topic, batch_of([b"1", b"2", b"3"]))
    admin = AdminClient({"bootstrap.servers": penstock_cluster.bootstrap_servers, "log_level": 0})
    partition = TopicPartition(penstock_topic, 0, 2)
    result = next(iter(admin.delete_records([partition]).values())).result(timeout=10)
    assert result.low_watermark == 2
    assert wire.list_offset(penstock_topic, EARLIEST).offset == 2
    assert wire.list_offset(penstock_topic, LATEST).offset == 3
    assert wire.list_offset(penstock_topic, 0).offset == 2


def test_clients_seek_by_time(wire: WireClient, penstock_cluster: Cluster, penstock_topic: str, now: int) -> None:
    for number in range(100):
        wire.produce(penstock_topic, batch_of([b"x"] * 3, timestamps=[now + number * 10 + index for index in range(3)]))
    reader = Consumer({"bootstrap.servers": penstock_cluster.bootstrap_servers, "group.id": "unused", "log_level": 0})
    wanted = {now + 500: 150, now + 501: 151, now + 503: 153, now + 5000: -1}
    for timestamp, offset in wanted.items():
        (found,) = reader.offsets_for_times([TopicPartition(penstock_topic, 0, timestamp)], timeout=10)
        assert found.offset == offset
    reader.close()
    admin = AdminClient({"bootstrap.servers": penstock_cluster.bootstrap_servers, "log_level": 0})
    specs: dict[Any, int] = {OffsetSpec.earliest: 0, OffsetSpec.latest: 300, OffsetSpec.max_timestamp: 299}
    for spec, offset in specs.items():
        answers = admin.list_offsets({TopicPartition(penstock_topic, 0): spec()})
        assert next(iter(answers.values())).result(timeout=10).offset == offset


@pytest.fixture(scope="module")
def restarting() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_times_are_found_over_many_segments_and_after_a_restart(restarting: Cluster, now: int, how: str) -> None:
    topic = restarting.create_topic(configs={"internal.segment.bytes": "2000", "index.interval.bytes": "200"})
    with WireClient(restarting.bootstrap_servers) as wire:
        for number in range(100):
            timestamps = [now + number * 100, now + number * 100 + 50]
            wire.produce(topic, batch_of([b"x" * 50] * 2, timestamps=timestamps, compression=number % 5))
    if how == "killed":
        restarting.kill()
    restarting.restart()
    with WireClient(restarting.bootstrap_servers) as wire:
        for number in (0, 1, 37, 38, 64, 99):
            assert wire.list_offset(topic, now + number * 100 - 1).offset == number * 2
            assert wire.list_offset(topic, now + number * 100 + 1).offset == number * 2 + 1
        assert wire.list_offset(topic, MAX_TIMESTAMP).offset == 199
        assert wire.list_offset(topic, now + 100_000).offset == -1
