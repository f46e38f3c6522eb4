"""The Spark source's way past the brokers, without Spark: the same rows from the bucket as through the brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow: install it with .venv/bin/pip install -e '.[dev]'")

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.model.errors import ApiError
from penstock.spark.arrow import record_batch
from penstock.spark.fetching import DataLost, OffsetRange
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.tier.planning import plan_reads
from penstock.spark.tier.reading import DamagedSegment, read_plan
from penstock.spark.tier.sections import Plan
from penstock.storage.tier.object_store import StoreError
from penstock.testing import Cluster
from support.spark.topics import Entry, write
from support.tier_cluster import TIERED, eventually, fill, tier_missing, tier_settings
from support.wire_client import WireClient
from support.wire_transactions import WireProducer

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

LATEST_TIERED = -5
# Copied like all, and kept on disk.
KEPT = {**TIERED, "local.retention.bytes": "-2"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
SMALL_BATCHES = {"batch.size": 1000}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(bucket: Path) -> Iterator[Cluster]:
    with Cluster({**tier_settings(f"file://{bucket}"), "transaction.state.log.num.partitions": "1"}) as running:
        yield running


class Reading:
    """A topic's first partition, read with or without the bucket."""

    def __init__(self, cluster: Cluster, bucket: Path, topic: str) -> None:
        self.servers = cluster.bootstrap_servers
        self.bucket = bucket
        self.topic = topic

    def options(self, **given: str) -> SourceOptions:
        base = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic, "tier.url": f"file://{self.bucket}"}
        chosen = {**base, "includeHeaders": "true", **given}
        return read_options({name: text for name, text in chosen.items() if text}, streaming=False)

    def ends(self) -> tuple[int, int, int]:
        """The first offset, the one after the last in the bucket, and the one after the last."""
        with WireClient(self.servers) as wire:
            return (
                wire.list_offset(self.topic, -2).offset,
                wire.list_offset(self.topic, LATEST_TIERED).offset + 1,
                wire.list_offset(self.topic, -1).offset,
            )

    def plan(self, start: int, end: int, **given: str) -> Plan:
        (plan,) = plan_reads(self.options(**given), [OffsetRange(self.topic, 0, start, end)])
        return plan

    def rows(self, plan: Plan, **given: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for columns, timestamp_type in read_plan(self.options(**given), plan):
            found += record_batch(columns, self.topic, 0, timestamp_type).to_pylist()
        return found

    def compare(self, start: int, end: int, **given: str) -> list[dict[str, Any]]:
        """Read both ways; returns the rows, which are the same."""
        plan = self.plan(start, end, **given)
        through_brokers = self.plan(start, end, **{**given, "tier.url": ""})
        assert [one.segment for one in through_brokers.sections] == [None]
        expected = self.rows(through_brokers, **given)
        assert self.rows(plan, **given) == expected
        return expected

    def objects(self, suffix: str) -> list[Path]:
        return sorted(self.bucket.glob(f"*/{self.topic}/*/0/*.{suffix}"))


def tiered(cluster: Cluster, bucket: Path, configs: Mapping[str, str] = TIERED, records: int = 2000) -> Reading:
    reading = Reading(cluster, bucket, cluster.create_topic(configs=dict(configs)))
    if records:
        fill(reading.servers, reading.topic, [f"{number:08d}".encode() * 12 for number in range(records)])
        settle(cluster, reading)
    return reading


def settle(cluster: Cluster, reading: Reading) -> None:
    """Wait until all rolled segments are copied."""

    def is_copied() -> bool:
        active = max(int(path.stem) for path in cluster.data_dir.rglob(f"{reading.topic}-0/*.log"))
        return reading.ends()[1] == active > 0

    eventually(is_copied)


def test_all_kinds_of_records(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket, records=0)
    written = []
    for number, codec in enumerate(CODECS):
        entries = [
            Entry(None if item % 3 else b"k%d" % item, None if item % 7 == 3 else b"v%d" % item * 20, 0, headers)
            for item in range(400)
            for headers in [(("a", b"1"), ("a", None), ("b", b"")) if item % 2 else None]
        ]
        written += write(reading.servers, reading.topic, entries, {"compression.type": codec, "linger.ms": 1 + number})
    compressed = len(written)
    # How well the records above are compressed depends on how many came into a batch; these fill a segment always.
    written += write(
        reading.servers, reading.topic, [Entry(None, b"%04d" % item * 50) for item in range(200)], SMALL_BATCHES
    )
    settle(cluster, reading)
    first, copied, end = reading.ends()
    assert (first, end) == (0, len(written))
    assert compressed < copied < end
    plan = reading.plan(0, end)
    assert [one.segment is None for one in plan.sections] == [False] * (len(plan.sections) - 1) + [True]
    assert plan.sections[-1].start == copied
    rows = reading.compare(0, end)
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (one.offset, one.key, one.value) for one in written
    ]
    for start, until in ((1, 2), (copied - 1, copied + 1), (copied // 2, copied // 2 + 7), (copied, end)):
        assert [row["offset"] for row in reading.compare(start, until)] == list(range(start, until))


def test_aborted_transactions(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket, records=0)
    producer = Producer(
        {"bootstrap.servers": reading.servers, "transactional.id": reading.topic, "batch.size": 1000, "linger.ms": 1}
    )
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for item in range(100):
            producer.produce(reading.topic, f"{number:04d}{item:04d}".encode() * 12, partition=0)
        assert producer.flush(30) == 0
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(30)
    settle(cluster, reading)
    _, copied, end = reading.ends()
    assert len(reading.compare(0, end, **COMMITTED)) == 800
    assert len(reading.compare(0, end)) == 1200
    for start in range(0, end, 150):
        reading.compare(start, min(start + 130, end), **COMMITTED)
    assert copied > 1000


def test_a_transaction_that_is_aborted_after_what_was_copied(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket, records=0)
    with WireClient(reading.servers) as wire:
        aborted, committed, open_one = (WireProducer(wire, f"{reading.topic}-{name}") for name in "abc")
        for one in (aborted, committed, open_one):
            one.start()
            assert one.add(reading.topic) == 0
        # One record of each transaction in every segment, and the markers after all of them.
        for _ in range(6):
            for one in (aborted, committed):
                assert one.write(reading.topic, b"in a transaction").error_code == 0
            fill(reading.servers, reading.topic, [b"plain" * 20] * 150)
        open_one.write(reading.topic, b"undecided")
        assert committed.end(commit=True) == 0
        assert aborted.end(commit=False) == 0
    settle(cluster, reading)
    first, copied, _ = reading.ends()
    with WireClient(reading.servers) as wire:
        stable = wire.list_offset(reading.topic, -1, isolation_level=1).offset
    values = [row["value"] for row in reading.compare(first, stable, **COMMITTED)]
    assert values.count(b"in a transaction") == 6
    plan = reading.plan(first, copied, **COMMITTED)
    assert {one.producer_id for one in plan.aborted} == {aborted.producer_id}
    for until in (copied, copied - 1, copied // 2, 2):
        reading.compare(first, until, **COMMITTED)


def test_what_is_before_the_log_start_offset_is_gone(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket)
    delete_records(reading, 1010)
    plan = reading.plan(0, 2000)
    with pytest.raises(DataLost, match="the log now starts at 1010"):
        reading.rows(plan)
    rows = reading.compare(0, 2000, failOnDataLoss="false")
    assert [row["offset"] for row in rows] == list(range(1010, 2000))
    assert [row["offset"] for row in reading.compare(1010, 2000)] == list(range(1010, 2000))


def test_segments_that_are_deleted_after_planning(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket)
    plan = reading.plan(0, 2000)
    before = len(reading.objects("log"))
    delete_records(reading, 1000)
    eventually(lambda: len(reading.objects("log")) < before - 4)
    with pytest.raises(DataLost, match="the log now starts at 1000"):
        reading.rows(plan)
    left = [row["offset"] for row in reading.rows(plan, failOnDataLoss="false")]
    # A segment that is still there because only part of it is gone may be read whole, as it was planned.
    assert left[-1000:] == list(range(1000, 2000))
    assert len(left) < 1300


def test_segments_that_brokers_still_have_are_read_there(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket, KEPT)
    plan = reading.plan(0, 2000)
    assert len(plan.sections) > 5
    expected = reading.rows(plan)
    for suffix in ("log", "index"):
        reading.objects(suffix)[2].unlink()
    assert reading.rows(plan) == expected
    again = reading.plan(200, 210)
    reading.objects("index")[0].unlink()
    assert [row["offset"] for row in reading.rows(again)] == list(range(200, 210))


def test_damage_fails_the_read(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket)
    path = reading.objects("log")[1]
    content = path.read_bytes()
    path.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    with pytest.raises(DamagedSegment, match="penstock tier verify"):
        reading.rows(reading.plan(0, 2000))


def test_what_is_in_the_bucket_needs_no_brokers_once_it_is_planned(cluster: Cluster, bucket: Path) -> None:
    reading = tiered(cluster, bucket)
    _, copied, _ = reading.ends()
    plan = reading.plan(0, copied)
    cluster.kill()
    try:
        assert [row["offset"] for row in reading.rows(plan)] == list(range(copied))
    finally:
        cluster.start()


def test_topics_that_are_not_tiered_and_other_buckets(cluster: Cluster, bucket: Path, tmp_path: Path) -> None:
    plain = Reading(cluster, bucket, cluster.create_topic())
    fill(plain.servers, plain.topic, [b"x"] * 10)
    assert [one.segment for one in plain.plan(0, 10).sections] == [None]
    reading = tiered(cluster, bucket)
    with pytest.raises(StoreError, match=r"tier\.url must be"):
        reading.plan(0, 2000, **{"tier.url": f"file://{tmp_path}"})


def test_a_topic_that_is_gone(cluster: Cluster, bucket: Path) -> None:
    gone = Reading(cluster, bucket, "gone")
    # Found out by the task, as it is without the bucket.
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        gone.rows(gone.plan(0, 10))
    fewer = Reading(cluster, bucket, cluster.create_topic())
    plans = plan_reads(fewer.options(), [OffsetRange(fewer.topic, 7, 0, 10)])
    assert [one.segment for one in plans[0].sections] == [None]


def delete_records(reading: Reading, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": reading.servers})
    place = TopicPartition(reading.topic, 0, before)
    admin.delete_records([place])[place].result(10)
