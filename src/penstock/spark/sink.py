"""Writes with the data source `penstock`: batch and streaming, at least once, or exactly once by transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType, TimestampType

from penstock.client.settings import ConnectionSettings, librdkafka_properties, read_settings
from penstock.model.ids import TopicPartition
from penstock.spark import markers
from penstock.spark.markers import Marker, MarkerLog
from penstock.spark.options import CLIENT_ID, split_options
from penstock.spark.producing import BATCH_OVERHEAD_BYTES, RecordWriter, WriteCounts, rows_of
from penstock.spark.shared import message_bytes_max, shared_client

KNOWN = {"topic", "delivery", "transactionalid", "markertopic"}
# Options that Spark itself adds.
OF_SPARK = {"path", "checkpointlocation", "queryname"}
DELIVERIES = ("at-least-once", "exactly-once")
FLUSH_SECONDS = 300.0
MARKER_PAUSE_SECONDS = 0.2
BATCH_BYTES_MAX = 1_000_000
# Below the brokers' default limit (15 minutes): a task may take long, and its transaction must outlive it.
TRANSACTION_TIMEOUT_MS = 600_000

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"

# The Java client's partitioner, so that this sink and Spark's own write a key to the same partition.
PRODUCER_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "20",
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": "131072",
    "message.max.bytes": "100000000",
    "log_level": "3",
}
_TYPES = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A writer's settings. Serialized to executors."""

    connection: ConnectionSettings
    topic: str | None
    exactly_once: bool
    transactional_id: str | None
    marker_topic: str


@dataclass
class Written(WriterCommitMessage):
    """A task's result; `skipped` if its part had been written before."""

    counts: WriteCounts
    skipped: bool = False


def read_sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """The settings in a writer's options; raises ValueError with the wrong option or column and what to write."""
    given, properties = split_options(options, KNOWN, OF_SPARK)
    delivery = given.get("delivery", DELIVERIES[0])
    if delivery not in DELIVERIES:
        raise ValueError(f"delivery is {delivery!r}: use {' or '.join(DELIVERIES)}")
    _check_columns(schema, given.get("topic"))
    return SinkOptions(
        connection=read_settings({"client.id": CLIENT_ID, **properties}),
        topic=given.get("topic"),
        exactly_once=delivery == DELIVERIES[1],
        transactional_id=given.get("transactionalid"),
        marker_topic=given.get("markertopic", markers.TOPIC),
    )


def _check_columns(schema: StructType, topic: str | None) -> None:
    names = schema.fieldNames()
    if "value" not in names:
        raise ValueError(f"there is no column value, only {', '.join(names)}: select what to send AS value")
    if topic is None and "topic" not in names:
        raise ValueError("there is no target topic: set the option topic, or select a column AS topic")
    for field in schema.fields:
        kinds = _TYPES.get(field.name)
        if kinds is None:
            raise ValueError(f"column {field.name} is not one of {', '.join(_TYPES)}: leave it out of the SELECT")
        if not isinstance(field.dataType, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise ValueError(f"column {field.name} is {field.dataType.simpleString()}: cast it to {wanted}")


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Exactly once means that a task that Spark repeats writes no record twice."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[object]) -> WriterCommitMessage:
        name = self._options.transactional_id or f"penstock-write-{self._write_id}"
        return _write(self._options, iterator, name, Marker(self._write_id, 0))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Each task commits its own transaction; Spark's commit does nothing."""

    def __init__(self, options: SinkOptions) -> None:
        # Spark creates a writer for every micro-batch, and another for its commit: no request to the cluster here.
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise RuntimeError("Spark did not pass the micro-batch's id: use a micro-batch trigger")
        name = self._options.transactional_id or f"penstock-{query}"
        return _write(self._options, iterator, name, Marker(query, int(batch)))


def _write(options: SinkOptions, batches: Iterator[Any], name: str, marker: Marker) -> Written:
    context = TaskContext.get()
    assert context is not None
    rows = rows_of(batches, options.topic)
    if not options.exactly_once:
        writer = _record_writer(options, make_producer(options, {}))
        writer.write(rows)
        return Written(writer.finish(FLUSH_SECONDS))
    task = f"{name}-{context.partitionId()}"
    transactional = {"transactional.id": task, "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
    producer = make_producer(options, transactional)
    writer = _record_writer(options, producer)
    log = marker_log(options.connection, options.marker_topic, task)

    def send() -> None:
        writer.write(rows)
        producer.produce(
            options.marker_topic,
            key=task,
            value=marker.encode(),
            partition=partition_of_task(options.connection, options.marker_topic, task),
        )
        writer.finish(FLUSH_SECONDS)

    wrote = markers.write_once(producer, lambda: log.last(task), marker, send)
    return Written(writer.counts, skipped=not wrote)


def make_producer(options: SinkOptions, properties: Mapping[str, str]) -> Any:
    """A librdkafka producer; the user's settings take precedence over these defaults."""
    from confluent_kafka import Producer

    defaults = dict(PRODUCER_DEFAULTS)
    if options.topic is not None:
        # librdkafka does not split a batch that the topic rejects as too large, so batches stay below the limit.
        limit = message_bytes_max(options.connection, options.topic)
        defaults["batch.size"] = str(min(BATCH_BYTES_MAX, max(1, limit - BATCH_OVERHEAD_BYTES)))
    return Producer({**defaults, **properties, **librdkafka_properties(options.connection)})


def _record_writer(options: SinkOptions, producer: Any) -> RecordWriter:
    return RecordWriter(
        producer,
        partial(message_bytes_max, options.connection),
        lambda topic: shared_client(options.connection).ensure_topic(topic, 1),
    )


def partition_of_task(settings: ConnectionSettings, topic: str, task: str) -> int:
    """The partition of a task's markers."""
    return markers.partition_of(task, marker_partitions(settings, topic))


@lru_cache(maxsize=256)
def marker_partitions(settings: ConnectionSettings, topic: str) -> int:
    """The partition count of the marker topic. The first task that needs it creates it."""
    client = shared_client(settings)
    deadline = time.monotonic() + markers.PATIENCE_SECONDS
    while not (found := client.partitions([topic]).get(topic)):
        client.ensure_topic(topic, markers.PARTITIONS, configs=markers.SETTINGS)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the marker topic {topic} was not created: create it with cleanup.policy=compact")
        time.sleep(MARKER_PAUSE_SECONDS)
    return len(found)


@lru_cache(maxsize=256)
def _log_of(settings: ConnectionSettings, partition: TopicPartition) -> MarkerLog:
    return MarkerLog(shared_client(settings), partition)


def marker_log(settings: ConnectionSettings, topic: str, task: str) -> MarkerLog:
    """The log of a task's markers; one per partition and process, which reads only new records."""
    return _log_of(settings, TopicPartition(topic, partition_of_task(settings, topic, task)))
