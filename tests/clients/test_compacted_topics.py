"""Compaction as clients and Apache Kafka's own tool see it: while being written and read, across a kill -9."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.core.lifecycle.retention import SegmentFacts
from penstock.storage.compaction.clean import Compaction, CompactionJob
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log, LogSettings
from penstock.testing import Cluster
from penstock.wire.records import Compression, Record, build_batch, read_header
from support.kafka_tools import kafka_tool

NOW_MS = 1_700_000_000_000
KEYS = 300
RECORDS = 30_000
GONE_KEYS = 40
TIMEOUT_S = 60

SERVER = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "200"}
# Slow enough to be met at work, however busy the machine is.
SLOW, SLOWER = ({"log.cleaner.io.max.bytes.per.second": rate} for rate in ("300000", "100000"))
TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": "500",
    "delete.retention.ms": "300",
    "file.delete.delay.ms": "100",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster({**SERVER, **SLOW}) as running:
        yield running


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {TIMEOUT_S} s"
        time.sleep(0.02)


class Reader(threading.Thread):
    """Reads the topic from its start to its end over and over, and notes offsets that do not rise."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.topic = topic
        self.stopping = threading.Event()
        self.rounds = 0
        self.reordered: list[tuple[int, int]] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            offsets = [offset for offset, _, _ in read_all(self.address, self.topic, self.stopping)]
            self.reordered += [pair for pair in pairwise(offsets) if pair[1] <= pair[0]]
            self.rounds += 1


def read_all(
    address: str, topic: str, stopping: threading.Event | None = None
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Everything from the start to the end that the topic has at the beginning, as one consumer sees it."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "log_level": 0, "enable.partition.eof": True}
    )
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while stopping is None or not stopping.is_set():
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset(), message.key(), message.value()))
            elif error.name() == "_PARTITION_EOF":
                return found
    except KafkaException:
        # The broker was killed; the next round starts again.
        return found
    finally:
        consumer.close()
    return found


def produce(cluster: Cluster, topic: str, first: int, count: int, latest: dict[bytes, bytes | None]) -> None:
    """Write numbered values to keys in turn; returns when all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "log_level": 0,
        }
    )
    failures: list[object] = []
    for number in range(first, first + count):
        key, value = b"key-%d" % (number * 7919 % KEYS), b"value-%d" % number
        producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _: error and failures.append(error))
        latest[key] = value
        if number % 500 == 0:
            producer.poll(0.01)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def files(cluster: Cluster, topic: str, pattern: str) -> list[Path]:
    return sorted((cluster.data_dir / f"{topic}-0").glob(pattern))


@pytest.mark.slow
def test_written_and_read_while_compacting_and_killed_in_the_middle(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs=TOPIC)
    latest: dict[bytes, bytes | None] = {}
    reader = Reader(cluster.bootstrap_servers, topic)
    reader.start()
    produce(cluster, topic, 0, RECORDS // 3, latest)
    writer = threading.Thread(
        target=produce, args=(cluster, topic, RECORDS // 3, RECORDS * 2 // 3, latest), daemon=True
    )
    writer.start()
    until(lambda: bool(files(cluster, topic, "*.cleaned")), "compaction under way")
    cluster.kill()
    cluster.start()
    writer.join(TIMEOUT_S)
    assert not writer.is_alive()

    def is_compacted() -> bool:
        rows = read_all(cluster.bootstrap_servers, topic)
        assert {key: value for _, key, value in rows} == latest
        return len(rows) < 2 * KEYS

    until(is_compacted, "compacted topic")
    reader.stopping.set()
    reader.join(TIMEOUT_S)
    assert reader.rounds > 0
    assert reader.reordered == []
    assert "compacted up to offset" in cluster.logs()
    checkpoint = (cluster.data_dir / "cleaner-offset-checkpoint").read_text().split("\n")
    assert checkpoint[:2] == ["0", "1"]
    assert re.fullmatch(rf"{topic} 0 \d+", checkpoint[2])

    expect_tombstones_to_vanish(cluster, topic, latest)


def expect_tombstones_to_vanish(cluster: Cluster, topic: str, latest: dict[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(GONE_KEYS):
        producer.produce(topic, None, b"key-%d" % number, partition=0)
        del latest[b"key-%d" % number]
    assert producer.flush(TIMEOUT_S) == 0

    def are_gone() -> bool:
        rows = read_all(cluster.bootstrap_servers, topic)
        state = {key: value for _, key, value in rows}
        assert {key: value for key, value in state.items() if value is not None} == latest
        return {key for _, key, _ in rows} == set(latest)

    until(are_gone, "topic without the deleted keys")
    assert len(read_all(cluster.bootstrap_servers, topic)) == KEYS - GONE_KEYS
    until(lambda: not files(cluster, topic, "*.deleted"), "removal of replaced files")


def test_an_orderly_stop_in_the_middle_of_a_cleaning() -> None:
    with Cluster({**SERVER, **SLOWER}) as cluster:
        topic = cluster.create_topic(configs=TOPIC)
        latest: dict[bytes, bytes | None] = {}
        produce(cluster, topic, 0, RECORDS // 3, latest)
        until(lambda: bool(files(cluster, topic, "*.cleaned")), "compaction under way")
        assert cluster.stop()
        assert re.findall(r"ERROR|CRITICAL|Traceback|Warning", cluster.logs()) == []
        cluster.start()
        assert {key: value for _, key, value in read_all(cluster.bootstrap_servers, topic)} == latest


# Apache Kafka's tool on cleaned segments.


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cleaned log: every codec, thinned and empty batches, tombstones with a delete horizon."""
    path: Path = tmp_path_factory.mktemp("data") / "events-0"
    settings = LogSettings(segment_bytes=8000, index_interval_bytes=300)
    log = Log.open(OsFilesystem(), path, settings, recovery_point=0, clean=False, now_ms=NOW_MS)
    for number in range(300):
        base_offset = log.end_offset
        pairs = [
            (b"key-%d" % (number * 7 % 120), b"value" * (number % 9)),
            (b"gone-%d" % (number % 30), None if number % 4 == 0 else b"x"),
        ]
        records = [Record(base_offset + i, NOW_MS + number * 10 + i, *pair) for i, pair in enumerate(pairs)]
        data = build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=number // 100,
            compression=list(Compression)[number % 5],
            producer_id=4000 + number % 2,
            producer_epoch=3,
            base_sequence=number // 2 * 2,
        )
        log.append([read_header(data)], data, NOW_MS)
    log.roll(NOW_MS)
    compact(log)
    assert log.segment_count > 3
    log.close()
    return path


def compact(log: Log) -> None:
    facts: list[SegmentFacts] = log.segment_facts()
    job = CompactionJob(
        directory=str(log.directory),
        segments=tuple(facts[:-1]),
        later_segments=tuple(facts[-1:]),
        first_dirty_offset=0,
        now_ms=NOW_MS,
        delete_retention_ms=86_400_000,
        segment_bytes=8000,
        index_interval_bytes=300,
        max_message_bytes=1 << 20,
        map_bytes_max=1 << 20,
        seed=bytes(16),
        producers=tuple((each.producer_id, each.last_offset, each.producer_epoch) for each in log.producers.entries),
    )
    for cleaned in Compaction(job, OsFilesystem(), lambda _: None).run():
        swap = log.begin_swap(cleaned, log.generation)
        assert swap is not None
        swap.sync()
        assert log.apply_swap(swap, NOW_MS)
        swap.sync()
        log.finish_swap(swap)


# What the tool remarks on any compacted log, Kafka's own included: gaps, and empty batches that keep their timestamp.
EXPECTED_REMARKS = re.compile(
    r"Non-consecutive offsets in .*|  -?\d+ is followed by \d+|Found timestamp mismatch in .*|"
    r"  Index timestamp: \d+, log timestamp: -1|"
)


def dump(directory: Path, suffix: str, *options: str) -> str:
    """The tool's output for all files of a kind; whatever it complains about goes to its error stream."""
    names = ",".join(str(path) for path in sorted(directory.glob(f"*{suffix}")))
    done = kafka_tool("kafka-dump-log", "--files", names, *options)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not EXPECTED_REMARKS.fullmatch(line)] == []
    return done.stdout


@pytest.mark.java
def test_every_cleaned_batch_is_understood(directory: Path) -> None:
    output = dump(directory, ".log", "--deep-iteration", "--print-data-log")
    batches = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*deleteHorizonMs: (\S+) .*isvalid: (\w+)$",
        output,
        re.MULTILINE,
    )
    assert {valid for *_, valid in batches} == {"true"}
    assert "invalid bytes" not in output
    assert {count for _, _, count, _, _ in batches} == {"0", "1", "2"}
    assert f"OptionalLong[{NOW_MS + 86_400_000}]" in {horizon for *_, horizon, _ in batches}
    rows = re.findall(r"^\| offset: (\d+) .*CreateTime: (\d+) .* key: (\S+)", output, re.MULTILINE)
    assert len(rows) == len({key for _, _, key in rows}) == 150
    offsets = [int(offset) for offset, _, _ in rows]
    assert offsets == sorted(offsets)
    assert all(int(time_ms) == NOW_MS + int(offset) // 2 * 10 + int(offset) % 2 for offset, time_ms, _ in rows)


@pytest.mark.java
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_of_cleaned_segments_point_where_they_say(directory: Path, suffix: str) -> None:
    sane = dump(directory, suffix, "--index-sanity-check")
    assert len(re.findall("passed sanity check|is empty", sane)) == len(list(directory.glob(f"*{suffix}"))) > 2
    entries = dump(directory, suffix)
    assert len(re.findall(r"^(?:offset|timestamp): \d+ ", entries, re.MULTILINE)) > 5
    dump(directory, suffix, "--verify-index-only")
