"""Writes with the format `penstock`: keys, headers, partitions and topics from columns, dead letters, streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from penstock.spark import dead_letters
from penstock.testing import Cluster
from support.spark.topics import numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def consume(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """Everything in a topic, read with librdkafka."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "sink-tests", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None, f"{topic} gave nothing more for ten seconds"
        if message.error() is not None:
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


@pytest.fixture
def options(cluster: Cluster) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers}


def test_columns_become_records(spark: SparkSession, cluster: Cluster, options: dict[str, str]) -> None:
    first, second = cluster.create_topic(partitions=3), cluster.create_topic()
    frame = spark.sql(f"""
        SELECT * FROM VALUES
            ('{first}', 'a', 'with everything', 2, array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)))),
            ('{first}', 'b', CAST(NULL AS STRING), 1, NULL),
            ('{second}', NULL, 'no key', NULL, NULL)
        AS rows(topic, key, value, partition, headers)
    """)
    frame.write.format("penstock").options(**options).mode("append").save()
    found = {(each.topic(), each.partition()): each for each in consume(cluster.bootstrap_servers, first, 3)}
    assert set(found) == {(first, 2), (first, 1)}
    whole = found[first, 2]
    assert (whole.key(), whole.value(), whole.headers()) == (b"a", b"with everything", [("h", b"1")])
    assert (found[first, 1].key(), found[first, 1].value(), found[first, 1].headers()) == (b"b", None, None)
    assert [(each.key(), each.value()) for each in consume(cluster.bootstrap_servers, second)] == [(None, b"no key")]


def test_the_option_topic_wins_and_timestamps_are_kept(
    spark: SparkSession, cluster: Cluster, options: dict[str, str]
) -> None:
    topic = cluster.create_topic()
    frame = spark.sql(
        "SELECT 'ignored' AS topic, CAST('v' AS BINARY) AS value, timestamp_millis(1700000000123) AS timestamp"
    )
    frame.write.format("penstock").options(topic=topic, **options).mode("append").save()
    (message,) = consume(cluster.bootstrap_servers, topic)
    assert message.timestamp()[1] == 1_700_000_000_123


def test_too_large_records_are_dead_lettered(spark: SparkSession, cluster: Cluster, options: dict[str, str]) -> None:
    topic = cluster.create_topic(configs={"max.message.bytes": "20000"})
    frame = spark.sql("SELECT CAST(id AS STRING) AS key, repeat('x', IF(id = 7, 30000, 5000)) AS value FROM range(20)")
    frame.write.format("penstock").options(topic=topic, **options).mode("append").save()
    assert sorted(int(each.key()) for each in consume(cluster.bootstrap_servers, topic)) == [*range(7), *range(8, 20)]
    (letter,) = consume(cluster.bootstrap_servers, dead_letters.topic_for(topic))
    assert (letter.key(), len(letter.value())) == (b"7", 30_000)
    headers = dict(letter.headers())
    assert headers[dead_letters.TOPIC] == topic.encode()
    assert b"raise its max.message.bytes" in headers[dead_letters.REASON]


@pytest.mark.parametrize(
    ("query", "more", "message"),
    [
        ("SELECT 1 AS key", {"topic": "t"}, "there is no column value"),
        ("SELECT 'v' AS value", {}, "there is no target topic"),
        ("SELECT 1 AS value", {"topic": "t"}, "column value is int: cast it to binary or string"),
        ("SELECT 'v' AS value, 1 AS other", {"topic": "t"}, "column other is not one of"),
        ("SELECT 'v' AS value", {"topic": "t", "delivery": "maybe"}, "use at-least-once or exactly-once"),
        ("SELECT 'v' AS value", {"topic": "t", "topics": "u"}, "option 'topics' is unknown"),
    ],
)
def test_errors_of_invalid_writes_contain_the_fix(
    spark: SparkSession, options: dict[str, str], query: str, more: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.sql(query).write.format("penstock").options(**options, **more).mode("append").save()


def test_stream_copies_one_topic_to_another(
    spark: SparkSession, cluster: Cluster, options: dict[str, str], tmp_path: Path
) -> None:
    source, target = cluster.create_topic(partitions=3), cluster.create_topic(partitions=2)
    reader = spark.readStream.format("penstock").options(**options, subscribe=source, startingOffsets="earliest")
    shouting = reader.load().selectExpr("key", "upper(CAST(value AS STRING)) AS value")

    def run() -> None:
        writer = shouting.writeStream.format("penstock").options(**options, topic=target)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination(60)
        assert query.exception() is None

    written: list[Any] = write(cluster.bootstrap_servers, source, numbered(500))
    run()
    written += write(cluster.bootstrap_servers, source, numbered(500, start=500))
    run()
    copied = consume(cluster.bootstrap_servers, target, 2)
    assert sorted((each.key(), each.value()) for each in copied) == sorted((w.key, w.value.upper()) for w in written)
