"""What it takes to lose a cluster with tiered storage, and to see whether it has come back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

from confluent_kafka import Producer

from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import MetaProperties, write_meta_properties
from penstock.testing import Cluster
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .tier_cluster import eventually, find_leader
from .wire_client import WireClient

LATEST, LATEST_TIERED = -1, -5
COMMITTED = {"isolation.level": "read_committed"}
UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def value(number: int) -> bytes:
    """A value that tells its number."""
    return f"{number:08d}".encode() * 12


def numbered(first: int, end: int) -> list[bytes]:
    """Several of them."""
    return [value(number) for number in range(first, end)]


def tier(*arguments: str, code: int = 0) -> tuple[Any, str]:
    """Run `penstock tier`; what it prints, and its progress on stderr."""
    command = [sys.executable, "-m", "penstock", "tier", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return (json.loads(done.stdout) if done.stdout else None), done.stderr


def topic_id(cluster: Cluster, topic: str) -> bytes:
    """A topic's id."""
    with WireClient(cluster.address(1)) as wire:
        (found,) = wire.call(MetadataRequest([MetadataRequestTopic(name=topic)], False), 12).topics
    return bytes(found.topic_id)


def offset(cluster: Cluster, topic: str, timestamp: int) -> int:
    """What ListOffsets returns for the first partition."""
    eventually(lambda: find_leader(cluster.address(1), topic) > 0)
    with WireClient(cluster.address(find_leader(cluster.address(1), topic))) as wire:
        return int(wire.list_offset(topic, timestamp).offset)


def write_transactions(servers: str, topic: str, count: int) -> None:
    """Transactions of 50 records, of which every second one is aborted."""
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
