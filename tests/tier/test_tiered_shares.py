"""Share groups get records that are only in object storage, and none that were aborted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from penstock.core.share.state import ShareKey
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest
from penstock.wire.records import read_header, read_records
from support.tier_cluster import TIERED, eventually, fill, local_bytes, tier_missing, tier_settings
from support.wire_client import WireClient

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

SHARE = 2
EARLIEST_LOCAL = -4
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384


def value(number: int) -> bytes:
    return f"{number:08d}".encode() * 12


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    bucket: Path = tmp_path_factory.mktemp("bucket")
    settings = {
        **tier_settings(f"file://{bucket}"),
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    with Cluster(settings) as running:
        yield running


def begin(wire: WireClient, topic: str, group: str) -> bytes:
    """The topic's id; the group's share-partition starts at offset 0."""
    (found,) = wire.call(MetadataRequest([MetadataRequestTopic(name=topic)], False), 12).topics
    key = ShareKey(group, found.topic_id, 0).coordinator_key
    state = InitializeStateData(found.topic_id, [PartitionData(0, 1, 0)])

    def is_done() -> bool:
        wire.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6)
        response = wire.call(InitializeShareGroupStateRequest(group, [state]), 0)
        return int(response.results[0].partitions[0].error_code) == 0

    eventually(is_done)
    return bytes(found.topic_id)


def taken(cluster: Cluster, topic: str, group: str, count: int) -> dict[int, bytes]:
    """Records that a member takes, by offset, until it has `count`."""
    found: dict[int, bytes] = {}
    with WireClient(cluster.bootstrap_servers) as wire:
        topic_id = begin(wire, topic, group)
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline, len(found)
            request = TakeShareRecordsRequest(group, "member", topic_id, [0], 400, 100_000, 1000)
            response = wire.call(request, 0)
            assert response.error_code == 0
            for row in response.partitions:
                assert row.error_code == ErrorCode.NONE, row.error_message
                records, position = {}, 0
                while position < len(row.records):
                    records |= {one.offset: one.value or b"" for one in read_records(row.records, 1 << 20, position)}
                    position += read_header(row.records, position).size_bytes
                for first, last, _ in row.acquired_records:
                    found |= {offset: records[offset] for offset in range(first, last + 1)}
    return found


def test_records_that_are_only_in_the_store(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs=dict(TIERED))
    fill(cluster.bootstrap_servers, topic, [value(number) for number in range(1500)])
    eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
    assert taken(cluster, topic, "readers", 1500) == {number: value(number) for number in range(1500)}


def test_aborted_transactions_in_the_store(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    topic = cluster.create_topic(configs=dict(TIERED))
    change = ConfigEntry("share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "committed", incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(10)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "batch.size": 1000, "linger.ms": 1})
    producer.init_transactions(30)
    kept = {}
    for number in range(20):
        producer.begin_transaction()
        for item in range(50):
            producer.produce(topic, value(100 * number + item), partition=0)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept |= {51 * number + item: value(100 * number + item) for item in range(50)}
    eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
    with WireClient(servers) as wire:
        assert wire.list_offset(topic, EARLIEST_LOCAL).offset > 51
    assert taken(cluster, topic, "committed", len(kept)) == kept
