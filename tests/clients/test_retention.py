"""Old records go by age and by size, whichever comes first, and consumers find their way past the gap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from support.wire_client import WireClient, batch_of

EARLIEST, LATEST = -2, -1
SMALL_SEGMENTS = {"internal.segment.bytes": "1000", "file.delete.delay.ms": "100"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"log.retention.check.interval.ms": "100"}) as running:
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[WireClient]:
    with WireClient(cluster.bootstrap_servers) as client:
        yield client


def fill(wire: WireClient, topic: str, batches: int, age_ms: int = 0) -> None:
    written = int(time.time() * 1000) - age_ms
    for _ in range(batches):
        assert wire.produce(topic, batch_of([b"x" * 300], timestamps=[written])).error_code == 0


def eventually(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def segments(cluster: Cluster, topic: str) -> list[Path]:
    return sorted((cluster.data_dir / f"{topic}-0").glob("*.log"))


def test_records_past_their_age_go_and_young_ones_stay(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic(configs={**SMALL_SEGMENTS, "retention.ms": "60000"})
    fill(wire, topic, 9, age_ms=120_000)
    fill(wire, topic, 6)
    # Segments go as a whole: the one in which old and young records meet stays.
    eventually(lambda: wire.list_offset(topic, EARLIEST).offset >= 6)
    time.sleep(0.3)
    assert 6 <= wire.list_offset(topic, EARLIEST).offset <= 9
    assert wire.list_offset(topic, LATEST).offset == 15
    assert wire.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_whole_partition_can_expire_and_offsets_continue(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic(configs={**SMALL_SEGMENTS, "retention.ms": "500"})
    fill(wire, topic, 8)
    eventually(lambda: wire.list_offset(topic, EARLIEST).offset == 8)
    assert wire.list_offset(topic, LATEST).offset == 8
    assert wire.produce(topic, batch_of([b"next"])).base_offset == 8


def test_size_bounds_a_partition(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic(configs={**SMALL_SEGMENTS, "retention.bytes": "3000"})
    fill(wire, topic, 40)
    eventually(lambda: wire.list_offset(topic, EARLIEST).offset > 25)
    eventually(lambda: 3000 <= sum(path.stat().st_size for path in segments(cluster, topic)) < 5000)


def test_without_limits_nothing_goes(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic(configs={**SMALL_SEGMENTS, "retention.ms": "-1", "retention.bytes": "-1"})
    fill(wire, topic, 10, age_ms=10**11)
    time.sleep(0.4)
    assert wire.list_offset(topic, EARLIEST).offset == 0


def test_compacted_topics_do_not_expire(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic(configs={**SMALL_SEGMENTS, "cleanup.policy": "compact", "retention.ms": "100"})
    for _ in range(5):
        wire.produce(topic, batch_of([b"x" * 300], keys=[b"key"]))
    time.sleep(0.5)
    assert wire.list_offset(topic, EARLIEST).offset == 0


def test_a_shorter_retention_takes_effect_at_once() -> None:
    """The broker looks every five minutes by default; a change of the setting is not left waiting for that."""
    with Cluster() as slow, WireClient(slow.bootstrap_servers) as client:
        topic = slow.create_topic(configs=SMALL_SEGMENTS)
        fill(client, topic, 20, age_ms=60_000)
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": slow.bootstrap_servers, "log_level": 0})
        admin.incremental_alter_configs([resource])[resource].result(timeout=10)
        eventually(lambda: client.list_offset(topic, EARLIEST).offset == 20, timeout_s=30)


def test_a_consumer_gets_past_what_is_gone(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic(configs={**SMALL_SEGMENTS, "retention.bytes": "2000"})
    fill(wire, topic, 30)
    eventually(lambda: wire.list_offset(topic, EARLIEST).offset > 15)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "auto.offset.reset": "earliest"}
    reader = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    reader.assign([TopicPartition(topic, 0, 0)])
    (message,) = reader.consume(1, 10)
    assert message.error() is None
    assert message.offset() == wire.list_offset(topic, EARLIEST).offset
    reader.close()


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_deleted_records_stay_deleted(how: str) -> None:
    with Cluster() as cluster:
        topic = cluster.create_topic(configs=SMALL_SEGMENTS)
        with WireClient(cluster.bootstrap_servers) as client:
            fill(client, topic, 20)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        next(iter(admin.delete_records([TopicPartition(topic, 0, 13)]).values())).result(timeout=10)
        if how == "killed":
            cluster.kill()
        cluster.restart()
        with WireClient(cluster.bootstrap_servers) as client:
            assert client.list_offset(topic, EARLIEST).offset == 13
            assert client.fetch(topic, 12).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert client.fetch(topic, 13).error_code == 0
            assert client.list_offset(topic, LATEST).offset == 20
        assert segments(cluster, topic)[0].stem > "0" * 20
