"""Clusters with tiered storage for tests: small segments, a directory or moto's S3 as the store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from penstock.testing import Cluster
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .tools import want
from .wire_client import WireClient

# Rolled every few hundred records, and off the disk as soon as they are copied.
TIERED: Mapping[str, str] = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "1024",
    "local.retention.bytes": "20000",
    "file.delete.delay.ms": "100",
}


def tier_missing() -> str | None:
    """None when obstore is installed, else the reason for the skip."""
    return None if find_spec("obstore") else want("obstore", "install it with .venv/bin/pip install -e '.[dev]'")


def tier_settings(url: str, nodes: int = 1, **options: str) -> dict[str, str]:
    """A broker's settings; `options` are those of the store."""
    return {
        "remote.log.storage.system.enable": "true",
        "penstock.tier.url": url,
        "penstock.tier.options": ",".join(f"{name}={value}" for name, value in options.items()),
        "penstock.tier.read.bytes": "8192",
        "remote.log.manager.task.interval.ms": "50",
        "remote.log.manager.task.retry.backoff.ms": "50",
        "remote.log.manager.task.retry.backoff.max.ms": "500",
        "log.retention.check.interval.ms": "100",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(min(nodes, 3)),
    }


def eventually(condition: Callable[[], bool], timeout_s: float = 90) -> None:
    """Wait for a condition; AssertionError if it does not come true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fill(servers: str, topic: str, values: Sequence[bytes], *, timestamp: int = 0, partition: int = 0) -> None:
    """Produce values, acknowledged by all, in small batches; their timestamps count up from `timestamp` if given."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "batch.size": 1000, "linger.ms": 1, "enable.idempotence": True})

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        stamp = timestamp + number if timestamp else 0
        producer.produce(topic, value, partition=partition, timestamp=stamp, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(180) == 0
    assert not failures


def read_all(
    servers: str,
    topic: str,
    end: int,
    start: int = 0,
    *,
    partition: int = 0,
    timeout_s: float = 60,
    **settings: str,
) -> list[tuple[int, bytes]]:
    """Every record from `start` to the offset before `end`, with its offset, as a consumer gets them."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True, "enable.auto.commit": False}
        | settings
    )
    consumer.assign([TopicPartition(topic, partition, start)])
    place = TopicPartition(topic, partition)
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.5):
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, message.value() or b""))
                elif error.name() == "_PARTITION_EOF" and consumer.position([place])[0].offset >= end:
                    return found
    finally:
        consumer.close()
    raise AssertionError(f"only {len(found)} records came up to {found[-1:]}")


def find_leader(address: str, topic: str, partition: int = 0) -> int:
    """The leader's id, as a node knows it; -1 if there is none."""
    with WireClient(address) as wire:
        (found,) = wire.call(MetadataRequest([MetadataRequestTopic(name=topic)], False), 12).topics
    return next(int(one.leader_id) for one in found.partitions if one.partition_index == partition)


def local_logs(cluster: Cluster, topic: str) -> list[Path]:
    """The segments of a topic on all disks."""
    return sorted(cluster.data_dir.rglob(f"{topic}-*/*.log"))


def local_bytes(cluster: Cluster, topic: str) -> int:
    """Their size, on all disks together."""
    size = 0
    for path in local_logs(cluster, topic):
        # It may be removed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size
