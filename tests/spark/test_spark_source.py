"""Reads with the format `penstock`: batches, streams, every codec, new partitions, retention, bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.testing import Cluster
from support.spark.topics import Entry, Written, add_partitions, numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def rows(frame: DataFrame) -> list[Written]:
    """What was read, in the form of what was written."""
    read = []
    for row in frame.selectExpr("*", "unix_millis(timestamp) AS milliseconds").collect():
        with_headers = "headers" in row and row.headers
        headers = tuple((each.key, _bytes(each.value)) for each in row.headers) if with_headers else None
        where = (row.topic, row.partition, row.offset, row.milliseconds)
        read.append(Written(*where, _bytes(row.key), _bytes(row.value), headers))
    return sorted(read)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


class Stream:
    """A streaming query over the test's broker that is run to the end of what there is, as often as wanted."""

    def __init__(self, spark: SparkSession, cluster: Cluster, checkpoint: Path, **options: Any) -> None:
        self._spark = spark
        self._checkpoint = str(checkpoint)
        self._options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "startingOffsets": "earliest",
            **options,
        }
        self.batches: list[list[Written]] = []

    def run(self) -> list[Written]:
        """Read all that there is now; returns what this run added."""
        before = len(self.batches)
        frame = self._spark.readStream.format("penstock").options(**self._options).load()
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", self._checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(60)
        assert not query.isActive, "the query did not end"
        return sorted(record for batch in self.batches[before:] for record in batch)

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        assert batch_id >= 0
        self.batches.append(rows(frame))


def test_every_codec_on_twelve_partitions(
    spark: SparkSession, read_topic: Any, cluster: Cluster, tmp_path: Path
) -> None:
    written = []
    for codec in CODECS:
        topic = cluster.create_topic(f"codec-{codec}", partitions=12)
        entries = [Entry(b"k%d" % number, b"v%d-" % number * 20) for number in range(1200)]
        written += write(cluster.bootstrap_servers, topic, entries, {"compression.type": codec})
    topics = ",".join(f"codec-{codec}" for codec in CODECS)
    assert rows(read_topic(topics)) == sorted(written)
    assert Stream(spark, cluster, tmp_path, subscribe=topics).run() == sorted(written)


def test_keys_values_and_headers_may_be_missing_or_empty(read_topic: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic()
    entries = [
        Entry(None, b"only a value"),
        Entry(b"only a key", None),
        Entry(b"", b""),
        Entry(b"k", b"v", headers=(("a", b"1"), ("a", None), ("b", b""))),
        Entry(b"binary \x00\xff", bytes(range(256)), timestamp=1_700_000_000_123),
    ]
    written = write(cluster.bootstrap_servers, topic, entries)
    assert rows(read_topic(topic, includeHeaders="true")) == written
    plain = read_topic(topic)
    assert plain.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert plain.filter("timestampType = 0").count() == len(entries)


def test_an_empty_topic_and_an_empty_range_give_no_rows(read_topic: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic(partitions=2)
    assert rows(read_topic(topic)) == []
    written = write(cluster.bootstrap_servers, topic, [Entry(b"k", b"v", partition=1)])
    bounds = {"startingOffsets": json.dumps({topic: {"0": -2, "1": 1}})}
    assert rows(read_topic(topic, **bounds)) == []
    assert rows(read_topic(topic)) == written


def test_bounds_by_offset_and_by_time(read_topic: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic(partitions=2)
    at = 1_700_000_000_000
    entries = [Entry(b"k", b"%d" % number, number % 2, timestamp=at + number * 1000) for number in range(100)]
    written = write(cluster.bootstrap_servers, topic, entries)
    starting = json.dumps({topic: {"0": 10, "1": -2}})
    ending = json.dumps({topic: {"0": 20, "1": 5}})
    chosen = rows(read_topic(topic, startingOffsets=starting, endingOffsets=ending))
    assert chosen == [each for each in written if (10 <= each.offset < 20 if each.partition == 0 else each.offset < 5)]
    between = rows(read_topic(topic, startingTimestamp=at + 30_000, endingTimestamp=at + 60_000))
    assert between == [each for each in written if at + 30_000 <= each.timestamp < at + 60_000]
    by_time = json.dumps({topic: {"0": at + 90_000, "1": at + 10_000_000}})
    with pytest.raises(PySparkException, match="has no record at or after"):
        rows(read_topic(topic, startingOffsetsByTimestamp=by_time))
    late = {"startingOffsetsByTimestamp": by_time, "startingOffsetsByTimestampStrategy": "latest"}
    assert rows(read_topic(topic, **late)) == [each for each in written if each.partition == 0 and each.offset >= 45]


def test_one_partition_is_read_by_many_tasks(read_topic: Any, cluster: Cluster) -> None:
    topic = cluster.create_topic()
    written = write(cluster.bootstrap_servers, topic, numbered(5000))
    split = read_topic(topic, minPartitions=7)
    assert split.rdd.getNumPartitions() == 7
    assert rows(split) == written
    assert read_topic(topic, maxRecordsPerPartition=1000).rdd.getNumPartitions() == 5


def test_missing_topic_is_named(read_topic: Any) -> None:
    with pytest.raises(PySparkException, match="no-such-topic does not exist"):
        read_topic("no-such-topic").count()


def test_stream_reads_limited_batches_and_new_partitions(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(partitions=3)
    stream = Stream(spark, cluster, tmp_path, subscribe=topic, maxOffsetsPerTrigger=400)
    first = write(cluster.bootstrap_servers, topic, numbered(1000))
    assert stream.run() == first
    assert [len(batch) <= 402 for batch in stream.batches] == [True, True, True]
    add_partitions(cluster.bootstrap_servers, topic, 5)
    grown = [Entry(b"g%d" % number, b"late", number % 5) for number in range(100)]
    second = write(cluster.bootstrap_servers, topic, grown)
    assert stream.run() == second
    assert stream.run() == []


def test_pattern_subscription_reads_new_topics(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("pattern-a")
    stream = Stream(spark, cluster, tmp_path, subscribePattern="pattern-.*")
    written = write(cluster.bootstrap_servers, "pattern-a", numbered(10))
    assert stream.run() == written
    cluster.create_topic("pattern-b", partitions=2)
    cluster.create_topic("other-pattern-b")
    write(cluster.bootstrap_servers, "other-pattern-b", numbered(10))
    later = write(cluster.bootstrap_servers, "pattern-b", numbered(20))
    assert stream.run() == later


def test_deleted_records_fail_the_query_or_are_skipped(
    spark: SparkSession, cluster: Cluster, read_topic: Any, tmp_path: Path
) -> None:
    topic = cluster.create_topic()
    write(cluster.bootstrap_servers, topic, numbered(10))
    strict = Stream(spark, cluster, tmp_path / "strict", subscribe=topic)
    lenient = Stream(spark, cluster, tmp_path / "lenient", subscribe=topic, failOnDataLoss="false")
    strict.run()
    lenient.run()
    # One batch: readers get it whole, with the records before the cut, which are not theirs.
    written = write(cluster.bootstrap_servers, topic, numbered(40, start=10), {"linger.ms": 200})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_records([TopicPartition(topic, 0, 30)])[TopicPartition(topic, 0)].result(timeout=10)
    with pytest.raises(PySparkException, match="the log now starts at 30"):
        strict.run()
    assert lenient.run() == [each for each in written if each.offset >= 30]
    assert rows(read_topic(topic)) == [each for each in written if each.offset >= 30]
