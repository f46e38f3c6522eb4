"""One broker whose old segments are in a directory: clients read everything as if it were all on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from penstock.testing import Cluster
from support.tier_cluster import (
    TIERED,
    eventually,
    fill,
    local_bytes,
    local_logs,
    read_all,
    tier_missing,
    tier_settings,
)
from support.wire_client import WireClient

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -2, -1, -4, -5, -6
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(bucket: Path) -> Iterator[Cluster]:
    with Cluster({**tier_settings(f"file://{bucket}"), "transaction.state.log.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[WireClient]:
    with WireClient(cluster.bootstrap_servers) as client:
        yield client


def objects(bucket: Path, topic: str, suffix: str = "") -> list[Path]:
    return sorted(path for path in bucket.glob(f"*/{topic}/**/*{suffix}") if path.is_file())


def value(number: int) -> bytes:
    return f"{number:08d}".encode() * 12


def tiered_topic(cluster: Cluster, records: int, timestamp: int = 0, **configs: str) -> str:
    """A topic whose records, but for the last ones, are only in the store."""
    topic = cluster.create_topic(configs={**TIERED, **{name.replace("_", "."): text for name, text in configs.items()}})
    fill(cluster.bootstrap_servers, topic, [value(number) for number in range(records)], timestamp=timestamp)
    eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
    return topic


def configure(cluster: Cluster, topic: str, **configs: str) -> None:
    changes = [
        ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
        for name, text in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(10)


def test_everything_is_read_at_its_offset_though_the_disk_has_little(
    cluster: Cluster, wire: WireClient, bucket: Path
) -> None:
    topic = tiered_topic(cluster, 3000)
    assert wire.list_offset(topic, EARLIEST_LOCAL).offset > 2000
    expected = [(number, value(number)) for number in range(3000)]
    assert read_all(cluster.bootstrap_servers, topic, 3000) == expected
    for start in (1, 1234, 2999):
        assert read_all(cluster.bootstrap_servers, topic, 3000, start) == expected[start:]
    for path in objects(bucket, topic, ".manifest.json"):
        manifest = json.loads(path.read_text())
        for kind, described in manifest["objects"].items():
            stored = path.with_name(path.name.replace("manifest.json", kind))
            assert stored.stat().st_size == described["size_bytes"]


def test_special_offsets(cluster: Cluster, wire: WireClient) -> None:
    topic = tiered_topic(cluster, 2000)
    local, tiered = wire.list_offset(topic, EARLIEST_LOCAL), wire.list_offset(topic, LATEST_TIERED)
    assert wire.list_offset(topic, EARLIEST).offset == 0
    assert wire.list_offset(topic, LATEST).offset == 2000
    assert 1000 < local.offset <= tiered.offset + 1 < 2000
    assert (local.leader_epoch, tiered.leader_epoch) == (0, 0)
    plain = cluster.create_topic()
    assert wire.list_offset(plain, LATEST_TIERED).offset == -1


def test_times_are_found_in_the_tier_and_on_disk(cluster: Cluster) -> None:
    begin = int(time.time() * 1000) - 1_000_000
    topic = tiered_topic(cluster, 2000, begin)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "times"})
    try:
        for number in (0, 1, 777, 1500, 1999):
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, begin + number)], timeout=10)
            assert found.offset == number
    finally:
        consumer.close()


def test_read_committed_skips_what_was_aborted_in_the_tier(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs=dict(TIERED))
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "batch.size": 1000, "linger.ms": 1}
    )
    producer.init_transactions(30)
    kept = []
    for number in range(40):
        producer.begin_transaction()
        for item in range(50):
            producer.produce(topic, value(100 * number + item), partition=0)
        # What is aborted is in the log all the same.
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept += [value(100 * number + item) for item in range(50)]
    eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
    end = 40 * 51
    committed = read_all(cluster.bootstrap_servers, topic, end, **{"isolation.level": "read_committed"})
    assert [found for _, found in committed] == kept
    everything = read_all(cluster.bootstrap_servers, topic, end, **{"isolation.level": "read_uncommitted"})
    assert len(everything) == 2000


def test_retention_rules_the_whole_and_removes_objects(cluster: Cluster, wire: WireClient, bucket: Path) -> None:
    topic = tiered_topic(cluster, 3000)
    configure(cluster, topic, retention_bytes="80000")
    eventually(lambda: wire.list_offset(topic, EARLIEST).offset > 1500)
    # Of at most 16 KiB each.
    eventually(lambda: len(objects(bucket, topic, ".log")) <= 7)
    start = wire.list_offset(topic, EARLIEST).offset
    assert start < wire.list_offset(topic, EARLIEST_LOCAL).offset
    expected = [(number, value(number)) for number in range(start, 3000)]
    assert read_all(cluster.bootstrap_servers, topic, 3000, start) == expected


def test_deleted_records_leave_the_tier(cluster: Cluster, wire: WireClient, bucket: Path) -> None:
    topic = tiered_topic(cluster, 2000)
    before = len(objects(bucket, topic, ".log"))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_records([TopicPartition(topic, 0, 1000)])[TopicPartition(topic, 0)].result(10)
    assert wire.list_offset(topic, EARLIEST).offset == 1000
    eventually(lambda: len(objects(bucket, topic, ".log")) < before - 4)
    assert read_all(cluster.bootstrap_servers, topic, 2000, 1000) == [(n, value(n)) for n in range(1000, 2000)]


def test_a_restart_finds_the_tier_again(cluster: Cluster) -> None:
    topic = tiered_topic(cluster, 1500)
    cluster.kill()
    cluster.start()
    assert read_all(cluster.bootstrap_servers, topic, 1500) == [(n, value(n)) for n in range(1500)]
    cluster.restart()
    assert read_all(cluster.bootstrap_servers, topic, 1500) == [(n, value(n)) for n in range(1500)]


def test_a_deleted_topic_leaves_nothing_behind(cluster: Cluster, bucket: Path) -> None:
    topic = tiered_topic(cluster, 1000)
    assert objects(bucket, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(10)
    eventually(lambda: not objects(bucket, topic))


def test_turning_it_off_needs_a_word_about_what_is_there(cluster: Cluster, wire: WireClient, bucket: Path) -> None:
    topic = tiered_topic(cluster, 1500)
    with pytest.raises(KafkaException, match=r"remote\.log\.delete\.on\.disable"):
        configure(cluster, topic, remote_storage_enable="false")
    configure(cluster, topic, remote_storage_enable="false", remote_log_delete_on_disable="true")
    eventually(lambda: not objects(bucket, topic, ".log"))
    start = wire.list_offset(topic, EARLIEST).offset
    assert start == wire.list_offset(topic, EARLIEST_LOCAL).offset > 0
    assert read_all(cluster.bootstrap_servers, topic, 1500, start) == [(n, value(n)) for n in range(start, 1500)]


def test_copying_can_stop_while_what_is_there_stays(cluster: Cluster, wire: WireClient) -> None:
    topic = tiered_topic(cluster, 1500)
    configure(cluster, topic, local_retention_bytes="-2", remote_log_copy_disable="true")
    # What was under way when copying was stopped is still finished.
    tiered = -1
    while tiered != (now := wire.list_offset(topic, LATEST_TIERED).offset):
        tiered = now
        time.sleep(1)
    fill(cluster.bootstrap_servers, topic, [value(number) for number in range(1500, 2500)])
    assert read_all(cluster.bootstrap_servers, topic, 2500) == [(n, value(n)) for n in range(2500)]
    assert wire.list_offset(topic, LATEST_TIERED).offset == tiered


def test_compacted_topics_are_refused(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    configs = {"remote.storage.enable": "true", "cleanup.policy": "compact"}
    with pytest.raises(KafkaException, match="compacted topic"):
        admin.create_topics([NewTopic("compacted", 1, 1, config=configs)])["compacted"].result(10)


def test_the_metadata_itself_is_not_tiered(cluster: Cluster) -> None:
    tiered_topic(cluster, 500)
    with pytest.raises(KafkaException, match="not for __remote_log_metadata"):
        configure(cluster, "__remote_log_metadata", remote_storage_enable="true")


def test_other_topics_stay_on_disk(cluster: Cluster, bucket: Path) -> None:
    topic = cluster.create_topic(configs={"internal.segment.bytes": "16384"})
    fill(cluster.bootstrap_servers, topic, [value(number) for number in range(1000)])
    tiered_topic(cluster, 1000)
    assert not objects(bucket, topic)
    assert len(local_logs(cluster, topic)) > 5
