"""Exactly once: the marker's logic by itself, and both ends of it against a broker that has transactions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.client.settings import read_settings
from penstock.spark.markers import Marker, MarkerLog, decode_marker, partition_of, write_once
from penstock.spark.shared import shared_client
from penstock.wire.records import ControlType, Record, build_batch, control_key
from support.kafka_broker import kafka_broker
from support.spark.topics import numbered, write


class FakeTransactions:
    """Records the calls made to it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002
        self.calls.append("init")

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        self.calls.append("commit")

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        self.calls.append("abort")


@pytest.mark.parametrize(
    ("found", "writes"),
    [
        (None, True),
        (Marker("q", 4), True),
        (Marker("q", 5), False),
        (Marker("q", 6), False),
        (Marker("another", 9), True),
    ],
)
def test_a_batch_is_written_unless_its_marker_is_there(found: Marker | None, writes: bool) -> None:
    producer = FakeTransactions()
    wrote = write_once(producer, lambda: found, Marker("q", 5), lambda: producer.calls.append("rows"))
    assert wrote is writes
    assert producer.calls == (["init", "begin", "rows", "commit"] if writes else ["init"])


def test_marker_is_read_only_after_the_predecessor_is_fenced() -> None:
    producer = FakeTransactions()

    def last_marker() -> None:
        producer.calls.append("last_marker")

    write_once(producer, last_marker, Marker("q", 0), lambda: None)
    assert producer.calls[:2] == ["init", "last_marker"]


def test_failed_write_aborts_its_transaction() -> None:
    producer = FakeTransactions()

    def fail() -> None:
        raise RuntimeError("the row cannot be sent")

    with pytest.raises(RuntimeError, match="cannot be sent"):
        write_once(producer, lambda: None, Marker("q", 0), fail)
    assert producer.calls == ["init", "begin", "abort"]


def marker_batch(offset: int, producer: int, key: bytes, batch: int) -> bytes:
    records = [Record(offset, 1, key, Marker("q", batch).encode())]
    sequence: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
    return build_batch(records, base_offset=offset, transactional=True, **sequence)


def ending(offset: int, producer: int, kind: ControlType) -> bytes:
    records = [Record(offset, 1, control_key(kind), bytes(6))]
    return build_batch(
        records, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


def test_committed_markers_are_read_past_open_transactions() -> None:
    log = MarkerLog(client=None, partition=None)  # type: ignore[arg-type]
    log.apply(
        marker_batch(0, 1, b"open", 3)
        + marker_batch(1, 2, b"committed", 4)
        + marker_batch(2, 3, b"aborted", 5)
        + ending(3, 2, ControlType.COMMIT)
        + ending(4, 3, ControlType.ABORT)
    )
    assert log._markers == {b"committed": Marker("q", 4)}
    log.apply(ending(5, 1, ControlType.COMMIT))
    assert log._markers[b"open"] == Marker("q", 3)
    # What was taken before is not taken again.
    log.apply(marker_batch(0, 1, b"open", 99) + ending(5, 1, ControlType.COMMIT))
    assert log._markers[b"open"] == Marker("q", 3)


def test_markers_are_spread_over_partitions_and_readable() -> None:
    assert {partition_of(f"penstock-query-{task}", 12) for task in range(100)} == set(range(12))
    assert decode_marker(Marker("q", 7).encode()) == Marker("q", 7)


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.heavy])])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that has transactions: ours, and the one that ours must not differ from."""
    if request.param == "kafka":
        with kafka_broker(tmp_path_factory.mktemp("kafka"), {"group.initial.rebalance.delay.ms": "0"}) as broker:
            yield broker.address
    else:
        yield request.getfixturevalue("cluster").bootstrap_servers


def make_topics(bootstrap: str, *topics: str) -> None:
    for topic in topics:
        shared_client(read_settings({"bootstrap.servers": bootstrap})).ensure_topic(topic, 1)


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """The values in a topic's only partition that a reader of committed records sees."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "check",
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while True:
        message = consumer.poll(15)
        assert message is not None, f"{topic} gave nothing for fifteen seconds"
        if message.error() is not None:
            consumer.close()
            return sorted(values)
        values.append(message.value())


def test_aborted_transactions_are_left_out(spark: Any, bootstrap: str) -> None:
    make_topics(bootstrap, "transactions")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "reader-test", "log_level": 0})
    producer.init_transactions(30)
    for number, keep in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for index in range(50):
            producer.produce("transactions", value=f"{number}-{index}")
        producer.flush(30)
        (producer.commit_transaction if keep else producer.abort_transaction)(30)

    def read(isolation: str) -> list[str]:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        options = {"subscribe": "transactions", "kafka.isolation.level": isolation, "minPartitions": "7"}
        frame = reader.options(**options).load().selectExpr("CAST(value AS STRING) AS value")
        return sorted(row.value for row in frame.collect())

    everything = sorted(f"{number}-{index}" for number in range(4) for index in range(50))
    assert read("read_uncommitted") == everything
    assert read("read_committed") == [value for value in everything if value[0] in "02"]


@pytest.mark.heavy
def test_a_batch_that_spark_repeats_is_written_once(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    make_topics(bootstrap, "once-in", "once-out")
    written = write(bootstrap, "once-in", numbered(300))
    options = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("penstock").options(**options, subscribe="once-in", startingOffsets="earliest")
    copy = reader.option("minPartitions", "3").load().select("key", "value")

    def run(**more: str) -> None:
        writer = copy.writeStream.format("penstock").options(
            **options, topic="once-out", delivery="exactly-once", **more
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination(100)
        assert not query.isActive

    def crash_before_the_commit_is_noted() -> None:
        """What is left when the driver dies between the tasks' commits and its own note of them."""
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)

    expected = sorted(each.value for each in written)
    run()
    assert committed(bootstrap, "once-out") == expected
    crash_before_the_commit_is_noted()
    run()
    assert committed(bootstrap, "once-out") == expected
    # A sink that does not find its markers is the broken one, and this test would see it.
    crash_before_the_commit_is_noted()
    run(markerTopic="other-markers")
    assert committed(bootstrap, "once-out") == sorted(expected * 2)
    shutil.rmtree(tmp_path / "checkpoint")
