"""Spark's own Kafka connector, unmodified, against Penstock: batch, streaming and sink; and next to our format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Cluster
from support.spark.connector import connector_jars
from support.spark.topics import Entry, numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def connector() -> None:
    found = connector_jars()
    if isinstance(found, str):
        pytest.skip(found)


def test_both_formats_read_the_same(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.create_topic(partitions=3)
    special = [Entry(None, b"x"), Entry(b"k", None), Entry(b"h", b"v", headers=(("a", b"1"), ("b", None)))]
    write(cluster.bootstrap_servers, topic, [*numbered(500), *special])

    def read(form: str) -> tuple[Any, list[Any]]:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
        frame = spark.read.format(form).options(**options).load()
        return frame.schema, frame.orderBy("partition", "offset").collect()

    assert read("kafka") == read("penstock")


@pytest.mark.heavy
def test_the_connector_streams_from_topic_to_topic(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    source, target = cluster.create_topic(partitions=2), cluster.create_topic()
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    written = write(cluster.bootstrap_servers, source, numbered(300))
    reader = spark.readStream.format("kafka").options(**options, subscribe=source, startingOffsets="earliest")
    writer = reader.load().select("key", "value").writeStream.format("kafka").options(**options, topic=target)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(100)
    assert query.exception() is None
    # The two sinks can take turns over one checkpoint.
    more = write(cluster.bootstrap_servers, source, numbered(50, start=300))
    copy = spark.readStream.format("kafka").options(**options, subscribe=source, startingOffsets="earliest").load()
    again = copy.select("key", "value").writeStream.format("penstock").options(**options, topic=target)
    query = again.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(100)
    assert query.exception() is None
    copied = spark.read.format("kafka").options(**options, subscribe=target).load().collect()
    assert sorted(bytes(row.key) for row in copied) == sorted(each.key for each in [*written, *more] if each.key)
