"""The format `penstock` on tiered topics of three nodes: old records from a directory or S3, the rest from brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from test_spark_source import CODECS, Stream, rows

from penstock.testing import Cluster
from support.spark.object_store import ACCESS, object_store, object_store_missing
from support.spark.topics import Entry, Written, write
from support.tier_cluster import TIERED, eventually, tier_missing, tier_settings
from support.wire_client import WireClient

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.options import read_options
from penstock.spark.source import StreamReader

MISSING = tier_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

LATEST_TIERED = -5
PARTITIONS = 2
COMMITTED = {"kafka.isolation.level": "read_committed"}


class Tiered:
    """A cluster whose topics are in a store, and readers of them."""

    def __init__(self, spark: SparkSession, cluster: Cluster, store: dict[str, str]) -> None:
        self.spark = spark
        self.cluster = cluster
        self.store = store

    def create(self) -> str:
        return self.cluster.create_topic(partitions=PARTITIONS, replication_factor=3, configs=dict(TIERED))

    def read(self, topic: str, **options: Any) -> DataFrame:
        """Past the brokers, where possible."""
        return self.through_brokers(topic, **self.store, **options)

    def through_brokers(self, topic: str, **options: Any) -> DataFrame:
        reader = self.spark.read.format("penstock").option("kafka.bootstrap.servers", self.cluster.bootstrap_servers)
        return reader.options(subscribe=topic, includeHeaders="true", **options).load()

    def copied(self, topic: str) -> dict[str, int]:
        """The first offset of each partition that is not in the store."""
        return {str(number): self._offset(topic, number, LATEST_TIERED) + 1 for number in range(PARTITIONS)}

    def settle(self, topic: str, least: int) -> None:
        """Wait until so many records of each partition are in the store."""
        eventually(lambda: min(self.copied(topic).values()) >= least, 60)

    def _offset(self, topic: str, partition: int, time: int) -> int:
        # Any node's metadata response has the leader.
        for node_id in self.cluster.node_ids:
            with WireClient(self.cluster.address(node_id)) as wire:
                found = wire.list_offset(topic, time, partition=partition)
                if not found.error_code:
                    return int(found.offset)
        return -1


@pytest.fixture(scope="module")
def tiered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """Three nodes with a directory."""
    store = {"tier.url": f"file://{tmp_path_factory.mktemp('bucket')}"}
    with Cluster(tier_settings(store["tier.url"], nodes=3), nodes=3) as cluster:
        yield Tiered(spark, cluster, store)


@pytest.fixture(scope="module")
def tiered_on_s3(spark: SparkSession) -> Iterator[Tiered]:
    """Three nodes with S3."""
    reason = object_store_missing()
    if reason is not None:
        pytest.skip(reason)
    with object_store("tier") as (endpoint, _):
        settings = tier_settings(
            "s3://tier/below/this",
            nodes=3,
            endpoint=endpoint,
            allow_http="true",
            region=ACCESS["AWS_REGION"],
            access_key_id=ACCESS["AWS_ACCESS_KEY_ID"],
            secret_access_key=ACCESS["AWS_SECRET_ACCESS_KEY"],
        )
        store = {name: settings[f"penstock.{name}"] for name in ("tier.url", "tier.options")}
        with Cluster(settings, nodes=3) as cluster:
            yield Tiered(spark, cluster, store)


def entries(count: int, start: int = 0, timestamp: int = 0) -> list[Entry]:
    """Records of every kind, by turns in both partitions."""
    return [
        Entry(
            None if number % 5 == 1 else b"k%d" % number,
            None if number % 5 == 2 else b"value %d " % number * 12,
            number % PARTITIONS,
            (("a", b"1"), ("a", None), ("b", b"")) if number % 5 == 3 else None,
            timestamp + number if timestamp else 0,
        )
        for number in range(start, start + count)
    ]


def fill(
    tiered: Tiered, topic: str, count: int, start: int = 0, *, timestamp: int = 0, codec: str = "none"
) -> list[Written]:
    """Write records in small batches."""
    properties = {"compression.type": codec, "batch.size": 2000, "linger.ms": 1}
    return write(tiered.cluster.bootstrap_servers, topic, entries(count, start, timestamp), properties)


@pytest.mark.parametrize("store", ["tiered", "tiered_on_s3"])
def test_the_same_rows_as_through_brokers(request: pytest.FixtureRequest, store: str) -> None:
    tiered: Tiered = request.getfixturevalue(store)
    topic = tiered.create()
    written: list[Written] = []
    for codec in CODECS:
        written += fill(tiered, topic, 800, len(written), codec=codec)
    tiered.settle(topic, 1000)
    assert rows(tiered.read(topic)) == sorted(written)
    assert rows(tiered.through_brokers(topic)) == sorted(written)
    starting, ending = json.dumps({topic: {"0": 333, "1": -2}}), json.dumps({topic: {"0": 555, "1": 77}})
    split = tiered.read(topic, startingOffsets=starting, endingOffsets=ending, minPartitions=7)
    assert split.rdd.getNumPartitions() == 7
    assert rows(split) == sorted(
        each for each in written if (333 <= each.offset < 555 if each.partition == 0 else each.offset < 77)
    )


def test_tiered_records_are_read_without_brokers(tiered: Tiered) -> None:
    topic = tiered.create()
    written = fill(tiered, topic, 2000)
    tiered.settle(topic, 700)
    copied = tiered.copied(topic)
    planned = tiered.read(topic, endingOffsets=json.dumps({topic: copied})).select("partition", "offset").rdd
    assert planned.getNumPartitions() == PARTITIONS
    for node_id in tiered.cluster.node_ids:
        tiered.cluster.pause(node_id)
    try:
        found = sorted(tuple(row) for row in planned.collect())
    finally:
        for node_id in tiered.cluster.node_ids:
            tiered.cluster.resume(node_id)
    assert found == [each[1:3] for each in written if each.offset < copied[str(each.partition)]]


def test_aborted_transactions(tiered: Tiered) -> None:
    topic = tiered.create()
    properties = {"bootstrap.servers": tiered.cluster.bootstrap_servers, "transactional.id": topic, "batch.size": 1000}
    producer = Producer({**properties, "linger.ms": 1})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        for item in range(200):
            producer.produce(topic, f"{number:04d}{item:04d}".encode() * 12, partition=item % PARTITIONS)
        assert producer.flush(30) == 0
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(30)
    tiered.settle(topic, 700)
    committed = rows(tiered.read(topic, **COMMITTED))
    assert len(committed) == 1400
    assert committed == rows(tiered.through_brokers(topic, **COMMITTED))
    everything = rows(tiered.read(topic, minPartitions=6))
    assert len(everything) == 2000
    assert everything == rows(tiered.through_brokers(topic))


def test_bounds_by_time(tiered: Tiered) -> None:
    topic = tiered.create()
    at = int(time.time() * 1000) - 1_000_000
    written = fill(tiered, topic, 2000, timestamp=at)
    tiered.settle(topic, 700)
    for start, end in ((100, 300), (1990, 2000), (0, 2000)):
        found = rows(tiered.read(topic, startingTimestamp=at + start, endingTimestamp=at + end))
        assert found == [each for each in written if at + start <= each.timestamp < at + end]


def test_a_stream_catches_up_from_the_store_and_continues_with_the_brokers(
    tiered_on_s3: Tiered, tmp_path: Path
) -> None:
    tiered = tiered_on_s3
    topic = tiered.create()
    written = fill(tiered, topic, 2000)
    tiered.settle(topic, 700)
    options = {**tiered.store, "subscribe": topic, "includeHeaders": "true", "maxOffsetsPerTrigger": "450"}
    # What the stream's first micro-batches are read from.
    reader = StreamReader(
        read_options({**options, "kafka.bootstrap.servers": tiered.cluster.bootstrap_servers}, streaming=True)
    )
    tasks = reader.partitions({topic: {"0": 0, "1": 0}}, {topic: {"0": 450, "1": 450}})
    assert all(section.segment is not None for task in tasks for section in task.value.sections)
    stream = Stream(tiered.spark, tiered.cluster, tmp_path, **options)
    assert stream.run() == written
    assert len(stream.batches) >= 4
    # Stopped, and run again from its checkpoint: some of this is in the store by now, and some is not.
    more = fill(tiered, topic, 1000, start=2000)
    tiered.settle(topic, 1100)
    assert stream.run() == more
    last = fill(tiered, topic, 10, start=3000)
    assert stream.run() == last
    assert stream.run() == []


def test_errors_of_wrong_stores_hide_their_secrets(tiered: Tiered, tmp_path: Path) -> None:
    topic = tiered.create()
    fill(tiered, topic, 2000)
    tiered.settle(topic, 700)
    secret = ACCESS["AWS_SECRET_ACCESS_KEY"] + "-of-mine"
    given = {"tier.url": "s3://nowhere", "tier.options": f"endpoint=http://127.0.0.1:9,secret_access_key={secret}"}
    frame = tiered.through_brokers(topic, **given, **{"kafkaConsumer.pollTimeoutMs": 1000})
    with pytest.raises(PySparkException) as refused:
        frame.count()
    assert secret not in str(refused.value)
    plan = frame._jdf.queryExecution()
    assert secret not in plan.toString() + plan.optimizedPlan().treeString()
    with pytest.raises(PySparkException, match=r"tier\.url must be"):
        tiered.through_brokers(topic, **{"tier.url": f"file://{tmp_path}"}).count()
