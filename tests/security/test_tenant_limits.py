"""`penstock tenant` on a secured node: what it makes can sign in, owns its names, and gets no more than it may have."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tenant_clients import ACCESS_LISTS, TIMEOUT_S, Commands, eventually, produce

from support.secure_cluster import SecureCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """One node with access lists, and no user but its administrator."""
    directory = tmp_path_factory.mktemp("tenants")
    with SecureCluster(directory, settings=ACCESS_LISTS) as cluster:
        yield Commands(cluster, directory)


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def failure(future: object) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)  # type: ignore[attr-defined]
    error: KafkaError = caught.value.args[0]
    return error


def test_topics_and_partitions_end_at_the_limit(commands: Commands) -> None:
    tenant = commands.tenant(new_name(), "--topics", "2", "--partitions", "5")
    admin = AdminClient(tenant.settings)
    names = [f"{tenant.name}.{number}" for number in range(3)]
    futures = admin.create_topics([NewTopic(name, 2, 1) for name in names])
    for name in names[:2]:
        futures[name].result(TIMEOUT_S)
    error = failure(futures[names[2]])
    assert error.code() == KafkaError.POLICY_VIOLATION
    assert "may have 2 topics (tenant_topics) and has 2" in error.str()
    error = failure(admin.create_partitions([NewPartitions(names[0], 4)])[names[0]])
    assert error.code() == KafkaError.POLICY_VIOLATION
    admin.create_partitions([NewPartitions(names[0], 3)])[names[0]].result(TIMEOUT_S)
    # For any caller: a client that only writes, and an administrator.
    written = produce(tenant.settings, f"{tenant.name}.auto", 1, message_timeout_ms="2000")
    assert len(written) == 1
    chief = AdminClient(commands.cluster.librdkafka())
    refused = chief.create_topics([NewTopic(f"{tenant.name}.more", 1, 1)])
    assert failure(refused[f"{tenant.name}.more"]).code() == KafkaError.POLICY_VIOLATION
    assert f"{tenant.name}.auto" not in chief.list_topics(timeout=TIMEOUT_S).topics
    shown = commands.described(tenant.name)
    assert (shown["topics"], shown["partitions"]) == ({"used": 2, "limit": 2}, {"used": 5, "limit": 5})
    commands.done("tenant", "alter", tenant.name, "--topics", "3", "--partitions", "unlimited")
    admin.create_topics([NewTopic(names[2], 7, 1)])[names[2]].result(TIMEOUT_S)


def test_storage_is_refused_at_the_limit_and_given_again_when_there_is_room(commands: Commands) -> None:
    tenant = commands.tenant(new_name(), "--storage", "100KB")
    topic = f"{tenant.name}.t"
    admin = AdminClient(tenant.settings)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
    errors = produce(tenant.settings, topic, 200, batch_num_messages="10", enable_idempotence="true")
    assert {error.code() for error in errors} == {KafkaError.POLICY_VIOLATION}
    assert 90 <= len(errors) <= 130
    shown = eventually(lambda: commands.described(tenant.name), lambda row: row["storage_bytes"]["used"] > 70_000)
    assert shown["storage_bytes"]["used"] <= shown["storage_bytes"]["limit"] == 100_000
    assert shown["refused_batches"] > 0
    consumer = Consumer({**tenant.settings, "group.id": f"{tenant.name}.readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    held = 200 - len(errors)
    read = 0
    while read < held:
        messages = consumer.consume(held, TIMEOUT_S)
        assert messages
        read += len(messages)
    consumer.commit(asynchronous=False)
    consumer.close()
    everything = [TopicPartition(topic, partition, -1) for partition in (0, 1)]
    for future in admin.delete_records(everything).values():
        future.result(TIMEOUT_S)
    eventually(lambda: commands.described(tenant.name), lambda row: row["storage_bytes"]["used"] < 50_000)
    assert produce(tenant.settings, topic, 20) == []
    commands.done("tenant", "alter", tenant.name, "--storage", "1")
    assert len(produce(tenant.settings, topic, 5)) == 5
    commands.done("tenant", "alter", tenant.name, "--storage", "1MB")
    assert produce(tenant.settings, topic, 200, enable_idempotence="false", acks="1") == []


def test_a_tenant_sees_itself_and_no_other(commands: Commands) -> None:
    tenant, other = commands.tenant(new_name()), commands.tenant(new_name())
    assert commands.described(tenant.name, who=tenant.settings)["tenant"] == tenant.name
    assert "CLUSTER_AUTHORIZATION_FAILED" in commands.refused("tenant", "describe", other.name, who=tenant.settings)
    assert "CLUSTER_AUTHORIZATION_FAILED" in commands.refused("tenant", "list", who=tenant.settings)
    refused = commands.refused("tenant", "alter", tenant.name, "--topics", "9999", who=tenant.settings)
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused
    assert {tenant.name, other.name} <= {
        row["tenant"] for row in json.loads(commands.done("tenant", "list", "-o", "json"))
    }


def test_what_cannot_be_created_is_said(commands: Commands) -> None:
    name = new_name()
    commands.tenant(name)
    assert "there is a tenant" in commands.refused("tenant", "create", name)
    assert "cannot be a tenant" in commands.refused("tenant", "create", "with.dot")
    assert "needs a limit" in commands.refused(
        "tenant", "create", new_name(), "--topics", "unlimited", "--partitions", "unlimited"
    )
    assert "is not a size" in commands.refused("tenant", "create", new_name(), "--storage", "50GB/s")
    assert "there is a user admin already" in commands.refused("tenant", "create", "admin")
    assert "there is no tenant" in commands.refused("tenant", "alter", new_name(), "--topics", "1")


def test_a_deleted_tenant_leaves_nothing(commands: Commands) -> None:
    tenant = commands.tenant(new_name(), "--produce", "20MB/s")
    topic = f"{tenant.name}.t"
    admin = AdminClient(tenant.settings)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    assert produce(tenant.settings, topic, 3) == []
    consumer = Consumer({**tenant.settings, "group.id": f"{tenant.name}.g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert consumer.poll(TIMEOUT_S) is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    assert "add --with-topics" in commands.refused("tenant", "delete", tenant.name, "--yes")
    assert "add --yes" in commands.refused("tenant", "delete", tenant.name, "--with-topics")
    said = commands.done("tenant", "delete", tenant.name, "--with-topics", "--yes")
    assert "3 rights, 1 topic, 1 group" in said
    # An open connection has no rights left.
    again = failure(admin.create_topics([NewTopic(f"{tenant.name}.u", 1, 1)])[f"{tenant.name}.u"])
    assert again.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for arguments in (("security", "user"), ("security", "acl"), ("security", "quota"), ("topic",), ("group",)):
        assert tenant.name not in commands.done(*arguments, "list")
    commands.tenant(tenant.name)
