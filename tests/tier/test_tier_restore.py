"""A cluster's directories are deleted; `penstock tier restore` brings back what is in the bucket."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.records import Record, build_batch
from support.tier_cluster import TIERED, eventually, fill, local_bytes, read_all, tier_missing, tier_settings
from support.tier_restore import (
    COMMITTED,
    LATEST,
    LATEST_TIERED,
    UNCOMMITTED,
    lose_everything,
    numbered,
    offset,
    tier,
    topic_id,
    value,
    write_transactions,
)
from support.wire_client import WireClient

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

GROUP = "billing"
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384


def restore(cluster: Cluster, bucket: Path, *arguments: str, code: int = 0) -> tuple[Any, str]:
    return tier("restore", "-b", cluster.bootstrap_servers, "--url", f"file://{bucket}", *arguments, code=code)


def verify(cluster: Cluster, bucket: Path) -> Any:
    return tier("verify", "-b", cluster.bootstrap_servers, "--url", f"file://{bucket}")[0]


def commit(servers: str, topic: str, committed: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(topic, 0, committed)], asynchronous=False)
    consumer.close()


def group_offsets(servers: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock", "group", "offsets", GROUP, "-b", servers, *arguments, "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def sequenced(producer_id: int, sequence: int) -> bytes:
    return build_batch(
        [Record(0, int(time.time() * 1000), None, b"once", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.mark.slow
def test_a_lost_cluster_comes_back_from_the_bucket(bucket: Path) -> None:
    saved = bucket.with_name("offsets.json")
    settings = {**tier_settings(f"file://{bucket}"), "transaction.state.log.num.partitions": "1"}
    with Cluster(settings) as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(partitions=2, configs={**TIERED, "retention.ms": "-1"})
        with WireClient(servers) as wire:
            producer_id = wire.new_producer_id()
            first = [wire.produce(topic, sequenced(producer_id, number)).base_offset for number in range(3)]
        write_transactions(servers, topic, 30)
        fill(servers, topic, numbered(0, 1000))
        eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
        everything = read_all(servers, topic, offset(cluster, topic, LATEST), **UNCOMMITTED)
        committed = read_all(servers, topic, offset(cluster, topic, LATEST), **COMMITTED)
        known_id = topic_id(cluster, topic)
        end = offset(cluster, topic, LATEST_TIERED) + 1
        commit(servers, topic, 500)
        saved.write_text(group_offsets(servers))
        lose_everything(cluster, next(bucket.iterdir()).name)

        (row,), _ = restore(cluster, bucket, "--dry-run")
        assert (row["topic"], row["partitions"], row["state"], row["problems"]) == (topic, 2, "missing", [])
        assert row["offsets"] == [[0, end], [0, 0]]
        (row,), told = restore(cluster, bucket)
        assert "2 of 2 partitions have a leader" in told
        assert "not in the bucket: groups' offsets" in told
        assert "penstock group offsets GROUP --import FILE" in told
        group_offsets(servers, "--import", str(saved))
        assert [row["offset"] for row in json.loads(group_offsets(servers))] == [500]
        (row,), told = restore(cluster, bucket)
        assert (row["state"], "not in the bucket" in told) == ("present", False)
        assert topic_id(cluster, topic) == known_id
        assert offset(cluster, topic, LATEST) == end
        assert read_all(servers, topic, end, **UNCOMMITTED) == [one for one in everything if one[0] < end]
        assert read_all(servers, topic, end, **COMMITTED) == [one for one in committed if one[0] < end]
        with WireClient(servers) as wire:
            # It was written before, and is not written again.
            assert wire.produce(topic, sequenced(producer_id, 2)).base_offset == first[2]
            assert wire.produce(topic, sequenced(producer_id, 3)).base_offset == end
            assert wire.new_producer_id() > producer_id
        fill(servers, topic, numbered(5000, 6000))
        eventually(lambda: offset(cluster, topic, LATEST_TIERED) > end + 500)
        again = read_all(servers, topic, end + 1001, **UNCOMMITTED)
        assert again == [
            *(one for one in everything if one[0] < end),
            (end, b"once"),
            *((end + 1 + number, value(5000 + number)) for number in range(1000)),
        ]
        found = verify(cluster, bucket)
        assert (found["problems"], found["orphans"]) == ([], [])
        cluster.kill()
        cluster.start()
        assert read_all(servers, topic, end + 1001, **UNCOMMITTED) == again


@pytest.mark.slow
def test_three_nodes_with_several_leaders_come_back_under_another_cluster_id(bucket: Path) -> None:
    settings = {
        **tier_settings(f"file://{bucket}", nodes=3),
        "min.insync.replicas": "2",
        "transaction.state.log.num.partitions": "1",
    }
    with Cluster(settings, nodes=3, start_timeout_s=60) as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(configs=dict(TIERED), replication_factor=3)
        write_transactions(servers, topic, 20)
        for victim in cluster.node_ids:
            cluster.kill(victim)
            fill(servers, topic, numbered(1000 * victim, 1000 * victim + 600))
            cluster.start(victim)
        eventually(lambda: local_bytes(cluster, topic) <= 3 * LOCAL_BYTES_MAX, 60)
        last = read_all(servers, topic, 20 * 51 + 1800, **UNCOMMITTED)
        committed = read_all(servers, topic, 20 * 51 + 1800, **COMMITTED)
        known_id = topic_id(cluster, topic)
        lose_everything(cluster, None)

        (row,), _ = restore(cluster, bucket)
        end = row["offsets"][0][1]
        assert row["problems"] == []
        assert 2000 < end <= 20 * 51 + 1800
        assert topic_id(cluster, topic) == known_id
        assert len(list(bucket.iterdir())) == 2, "a copy under the new cluster's id"
        assert read_all(servers, topic, end, **UNCOMMITTED) == [one for one in last if one[0] < end]
        assert read_all(servers, topic, end, **COMMITTED) == [one for one in committed if one[0] < end]
        fill(servers, topic, numbered(9000, 10_000))
        # Every replica has started from the tier, and leads once.
        expected = [one for one in last if one[0] < end]
        expected += [(end + number, value(9000 + number)) for number in range(1000)]
        for other in cluster.node_ids:
            cluster.stop(other)
            assert read_all(servers, topic, end + 1000, **UNCOMMITTED) == expected
            cluster.start(other)
        found = verify(cluster, bucket)
        assert (found["problems"], found["orphans"]) == ([], [])


@pytest.mark.slow
def test_what_is_missing_is_named_and_needs_a_word(bucket: Path) -> None:
    settings = {**tier_settings(f"file://{bucket}"), "transaction.state.log.num.partitions": "1"}
    with Cluster(settings) as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(configs={**TIERED, "retention.ms": "-1"})
        # The end of this transaction is in the last segment, which is not copied.
        producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value(0), partition=0)
        assert producer.flush(30) == 0
        fill(servers, topic, numbered(1, 1500))
        producer.commit_transaction(30)
        del producer
        eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
        lose_everything(cluster, next(bucket.iterdir()).name)
        logs = sorted(bucket.glob(f"*/{topic}/*/0/*.log"))
        logs[2].unlink()
        last = sorted(bucket.glob(f"*/{topic}/*/0/*.snapshot"))[-1]
        last.write_bytes(bytes(len(last.read_bytes())))
        first, after = (int(path.name[:20]) for path in logs[2:4])
        end = int(last.name[:20])

        _, told = restore(cluster, bucket, code=1)
        assert logs[2].name in told
        assert last.name.removesuffix(".snapshot") in told
        assert f"offsets {first} to {after - 1} are in no segment" in told
        assert "--partial" in told
        _, told = restore(cluster, bucket, "--topics", "other", code=1)
        assert "nothing of other" in told
        (row,), _ = restore(cluster, bucket, "--partial", "--config-override", "retention.ms=-1")
        assert row["offsets"] == [[0, end]]
        expected = [(number, value(number)) for number in range(after, end)]
        # What was not decided is aborted, and keeps no reader waiting.
        assert read_all(servers, topic, end, after, **COMMITTED) == expected
        with WireClient(servers) as wire:
            assert wire.list_offset(topic, LATEST, isolation_level=1).offset == end + 1
            aborted = wire.fetch(topic, 0, isolation_level=1).aborted_transactions
            assert [one.first_offset for one in aborted or ()] == [0]
            assert wire.fetch(topic, first).error_code == ErrorCode.KAFKA_STORAGE_ERROR
