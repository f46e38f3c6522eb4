"""A cluster's directories are deleted; `penstock tier restore` brings back what is in the bucket."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.model.errors import ErrorCode
from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import MetaProperties, write_meta_properties
from penstock.testing import Cluster
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.records import Record, build_batch
from support.tier_cluster import TIERED, eventually, fill, local_bytes, read_all, tier_missing, tier_settings
from support.wire_client import WireClient

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

LATEST, LATEST_TIERED = -1, -5
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384
COMMITTED = {"isolation.level": "read_committed"}
UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def value(number: int) -> bytes:
    return f"{number:08d}".encode() * 12


def numbered(first: int, end: int) -> list[bytes]:
    return [value(number) for number in range(first, end)]


def tier(*arguments: str, code: int = 0) -> tuple[Any, str]:
    command = [sys.executable, "-m", "penstock", "tier", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return (json.loads(done.stdout) if done.stdout else None), done.stderr


def restore(cluster: Cluster, bucket: Path, *arguments: str, code: int = 0) -> tuple[Any, str]:
    return tier("restore", "-b", cluster.bootstrap_servers, "--url", f"file://{bucket}", *arguments, code=code)


def verify(cluster: Cluster, bucket: Path) -> Any:
    return tier("verify", "-b", cluster.bootstrap_servers, "--url", f"file://{bucket}")[0]


def topic_id(cluster: Cluster, topic: str) -> bytes:
    with WireClient(cluster.address(1)) as wire:
        (found,) = wire.call(MetadataRequest([MetadataRequestTopic(name=topic)], False), 12).topics
    return bytes(found.topic_id)


def offset(cluster: Cluster, topic: str, timestamp: int) -> int:
    with WireClient(cluster.bootstrap_servers) as wire:
        return int(wire.list_offset(topic, timestamp).offset)


def write_transactions(servers: str, topic: str, count: int) -> None:
    """Every second one is aborted."""
    settings = {"bootstrap.servers": servers, "transactional.id": topic, "batch.size": 1000, "linger.ms": 1}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for item in range(50):
            producer.produce(topic, value(100 * number + item), partition=0)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


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


def lose_everything(cluster: Cluster, cluster_id: str | None) -> None:
    """All directories are deleted, and formatted again with the old cluster id if it is given."""
    cluster.kill()
    shutil.rmtree(cluster.data_dir)
    nodes = len(cluster.node_ids)
    for node_id in cluster.node_ids if cluster_id else ():
        directory = cluster.data_dir / str(node_id) if nodes > 1 else cluster.data_dir
        directory.mkdir(parents=True)
        write_meta_properties(
            OsFilesystem(), directory, MetaProperties(cluster_id or "", node_id, bytes([node_id] * 16))
        )
    cluster.start()


@pytest.mark.slow
def test_a_lost_cluster_comes_back_from_the_bucket(bucket: Path) -> None:
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
        lose_everything(cluster, next(bucket.iterdir()).name)

        (row,), _ = restore(cluster, bucket, "--dry-run")
        assert (row["topic"], row["partitions"], row["state"], row["problems"]) == (topic, 2, "missing", [])
        assert row["offsets"] == [[0, end], [0, 0]]
        (row,), told = restore(cluster, bucket)
        assert "2 of 2 partitions have a leader" in told
        (row,), _ = restore(cluster, bucket)
        assert row["state"] == "present"
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
        # What was not decided is aborted, and keeps nobody waiting.
        assert read_all(servers, topic, end, after, **COMMITTED) == expected
        with WireClient(servers) as wire:
            assert wire.list_offset(topic, LATEST, isolation_level=1).offset == end + 1
            aborted = wire.fetch(topic, 0, isolation_level=1).aborted_transactions
            assert [one.first_offset for one in aborted or ()] == [0]
            assert wire.fetch(topic, first).error_code == ErrorCode.KAFKA_STORAGE_ERROR
