"""Topics as clients create, grow, describe, delete and recreate them, and how they come to be by themselves."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.wire_client import WireClient, batch_of, fetch_request, records_in

# The settings of a topic that Apache Kafka 4.1 describes.
OWN_TOPIC_CONFIGS = {"penstock.acks.min", "penstock.backpressure.groups", "penstock.backpressure.lag.max"}
CONFLUENT_TOPIC_CONFIGS = {
    "confluent.key.schema.validation",
    "confluent.key.subject.name.strategy",
    "confluent.value.schema.validation",
    "confluent.value.subject.name.strategy",
}
KAFKA_TOPIC_CONFIGS = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def fresh() -> str:
    return f"fresh-{uuid.uuid4().hex[:10]}"


def consumer(servers: str, **settings: Any) -> Consumer:
    fixed = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    return Consumer({**fixed, **{name.replace("_", "."): value for name, value in settings.items()}})


def topic_id(wire: WireClient, topic: str) -> bytes:
    answer = wire.call(MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False), 12)
    found: bytes = answer.topics[0].topic_id
    return found


def test_the_answer_about_new_partitions_names_the_topic(wire: WireClient, penstock_topic: str) -> None:
    response = wire.call(CreatePartitionsRequest([CreatePartitionsTopic(penstock_topic, 3, None)], 5000), 3)
    assert [(row.name, row.error_code) for row in response.results] == [(penstock_topic, 0)]


def test_new_partitions_serve_at_once(admin: AdminClient, wire: WireClient, penstock_topic: str) -> None:
    admin.create_partitions([NewPartitions(penstock_topic, 4)])[penstock_topic].result(timeout=10)
    assert wire.produce(penstock_topic, batch_of([b"x"]), partition=3).error_code == 0
    with pytest.raises(KafkaException):
        admin.create_partitions([NewPartitions(penstock_topic, 2)])[penstock_topic].result(timeout=10)


def test_a_topic_s_settings_are_described_completely(admin: AdminClient, penstock_topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, penstock_topic)
    configs = admin.describe_configs([resource])[resource].result(timeout=10)
    assert set(configs) == KAFKA_TOPIC_CONFIGS | CONFLUENT_TOPIC_CONFIGS | OWN_TOPIC_CONFIGS
    assert all(entry.value is not None for entry in configs.values())
    assert configs["retention.ms"].value == "604800000"
    assert configs["max.message.bytes"].value == "1048588"


def test_a_topic_with_tiered_storage_is_refused_and_one_without_it_is_made(
    admin: AdminClient, penstock_topic: str
) -> None:
    """Kafka answers the same where remote.log.storage.system.enable is not set."""
    name = fresh()
    with pytest.raises(KafkaException, match="no tiered storage") as caught:
        admin.create_topics([NewTopic(name, 1, config={"remote.storage.enable": "true"})])[name].result(timeout=10)
    assert caught.value.args[0].code() == ErrorCode.INVALID_CONFIG
    admin.create_topics([NewTopic(name, 1, config={"remote.storage.enable": "false"})])[name].result(timeout=10)
    entry = ConfigEntry("remote.storage.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, penstock_topic, incremental_configs=[entry])
    with pytest.raises(KafkaException, match="no tiered storage") as caught:
        admin.incremental_alter_configs([resource])[resource].result(timeout=10)
    assert caught.value.args[0].code() == ErrorCode.INVALID_CONFIG


def test_a_broker_s_settings_are_described(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    configs = admin.describe_configs([resource])[resource].result(timeout=10)
    assert len(configs) > 150
    assert configs["log.retention.hours"].value == "168"
    assert "PLAINTEXT://" in (configs["listeners"].value or "")


def test_a_producer_creates_its_topic(servers: str, wire: WireClient) -> None:
    topic = fresh()
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce(topic, b"first")
    assert producer.flush(10) == 0
    assert wire.list_offset(topic, -1).offset == 1


def test_a_consumer_may_forbid_creation(servers: str, wire: WireClient) -> None:
    topic = fresh()
    reader = consumer(servers, allow_auto_create_topics=False)
    reader.assign([TopicPartition(topic, 0, 0)])
    reader.poll(1)
    reader.close()
    assert topic_id(wire, topic) == bytes(16)


def test_a_broker_may_forbid_creation() -> None:
    with Cluster({"auto.create.topics.enable": "false"}) as cluster:
        topic = fresh()
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 2000, "log_level": 0}
        )
        outcomes: list[str | None] = []
        producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error.name() if error else None))
        producer.flush(10)
        assert outcomes in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"], ["_MSG_TIMED_OUT"])
        with WireClient(cluster.bootstrap_servers) as wire:
            assert topic_id(wire, topic) == bytes(16)


def test_a_recreated_topic_is_another_topic(admin: AdminClient, wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic()
    before = topic_id(wire, topic)
    wire.produce(topic, batch_of([b"old"] * 10))
    admin.delete_topics([topic])[topic].result(timeout=10)
    penstock_cluster.create_topic(topic)
    after = topic_id(wire, topic)
    assert bytes(16) != before != after
    answer = wire.call(fetch_request("", 0, topic_id=before), 13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    answer = wire.call(fetch_request("", 0, topic_id=after), 13)
    assert (answer.responses[0].partitions[0].error_code, answer.responses[0].partitions[0].high_watermark) == (0, 0)
    assert wire.produce(topic, batch_of([b"new"])).base_offset == 0
    assert [record.value for record in records_in(wire.fetch(topic, 0).records)] == [b"new"]


def test_a_live_consumer_follows_a_recreated_topic(
    admin: AdminClient, wire: WireClient, penstock_cluster: Cluster
) -> None:
    topic = penstock_cluster.create_topic()
    wire.produce(topic, batch_of([b"old"] * 10))
    reader = consumer(
        penstock_cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        topic_metadata_refresh_interval_ms=200,
        topic_metadata_refresh_fast_interval_ms=100,
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    assert len(reader.consume(10, 10)) == 10
    admin.delete_topics([topic])[topic].result(timeout=10)
    penstock_cluster.create_topic(topic)
    wire.produce(topic, batch_of([b"new"]))
    deadline = time.monotonic() + 20
    values: list[bytes | None] = []
    while b"new" not in values and time.monotonic() < deadline:
        values += [message.value() for message in reader.consume(1, 0.5) if message.error() is None]
    reader.close()
    assert b"new" in values


def test_a_deleted_topic_leaves_no_files(admin: AdminClient, wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(partitions=3)
    wire.produce(topic, batch_of([b"x"]))
    assert len(list(penstock_cluster.data_dir.glob(f"{topic}-*"))) == 3
    admin.delete_topics([topic])[topic].result(timeout=10)
    deadline = time.monotonic() + 10
    while list(penstock_cluster.data_dir.glob(f"{topic}-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(penstock_cluster.data_dir.glob(f"{topic}-*"))
    assert wire.produce(topic, batch_of([b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
