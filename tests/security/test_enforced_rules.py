"""Rules, quotas and the audit trail on two secured nodes, with real clients."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import ResourcePatternType as Pattern

from penstock.client.cluster import ClusterClient
from penstock.client.failures import NoAnswer, NotServed
from penstock.client.settings import read_settings
from penstock.model.errors import ErrorCode
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from support.kafka_tools import kafka_tool
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster, java_properties

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient  # type: ignore[import-untyped]
    from kafka.admin import NewTopic as OtherTopic  # type: ignore[import-untyped]

ALICE = ("alice", "alice-secret", "PLAIN")


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """Two nodes with access lists and an audit trail."""
    settings = {
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
        "penstock.audit.enable": "true",
        "penstock.backpressure.check.interval.ms": "100",
        "max.connections.per.ip.overrides": "10.99.99.99:1",
    }
    with SecureCluster(tmp_path_factory.mktemp("ruled"), nodes=2, settings=settings) as cluster:
        allow(cluster, ResourceType.TOPIC, "*", AclOperation.WRITE)
        allow(cluster, ResourceType.TOPIC, "*", AclOperation.READ)
        allow(cluster, ResourceType.GROUP, "*", AclOperation.READ)
        yield cluster


def allow(cluster: SecureCluster, kind: ResourceType, name: str, operation: AclOperation) -> None:
    binding = AclBinding(kind, name, Pattern.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
    admin = AdminClient(cluster.librdkafka())
    for future in admin.create_acls([binding]).values():
        future.result(30)


def set_quota(cluster: SecureCluster, entity: EntityData, key: str, value: float | None) -> None:
    entry = AlterClientQuotasRequestEntryData([entity], [OpData(key, value or 0.0, value is None)])
    client = ClusterClient(read_settings(cluster.librdkafka()))
    try:
        assert [row.error_code for row in client.ask(AlterClientQuotasRequest([entry])).entries] == [0]
    finally:
        client.close()


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


class Trail:
    """What the administrator reads in `_audit`."""

    def __init__(self, cluster: SecureCluster) -> None:
        self.events: list[dict[str, Any]] = []
        self.text = ""
        self._consumer = Consumer(
            cluster.librdkafka()
            | {"group.id": "auditor", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        )
        self._consumer.assign([TopicPartition("_audit", 0, 0)])

    def find(self, **wanted: str) -> dict[str, Any]:
        """An event with these fields, once there is one."""

        def find() -> dict[str, Any] | None:
            for message in self._consumer.consume(100, 0.2):
                if message.error() is None:
                    self.text += message.value().decode()
                    self.events.append(json.loads(message.value()))
            return next((one for one in self.events if wanted.items() <= one.items()), None)

        found: dict[str, Any] = wait_for(find)
        return found

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def trail(ruled: SecureCluster) -> Iterator[Trail]:
    reader = Trail(ruled)
    yield reader
    reader.close()


def test_the_audit_trail_records_who_did_what(
    ruled: SecureCluster, trail: Trail, run_penstock: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(
        bootstrap_servers=ruled.servers(),
        security_protocol="SASL_SSL",
        ssl_cafile=str(ruled.ca_path),
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=ADMIN,
        sasl_plain_password=PASSWORD,
        client_id="kafka-python-admin",
    )
    admin.create_topics([OtherTopic(topic, 3, 2)])
    admin.close()
    created = trail.find(resource=topic, type="change")
    assert (created["principal"], created["client_id"], created["api"]) == (
        "User:admin",
        "kafka-python-admin",
        "CreateTopics",
    )
    assert created["details"]["partitions"] == "3"

    alice = AdminClient(ruled.librdkafka(*ALICE))
    with pytest.raises(KafkaException):
        alice.create_topics([NewTopic(f"{topic}-no", 1, 1)])[f"{topic}-no"].result(30)
    denied = trail.find(resource=f"{topic}-no", type="denied")
    assert (denied["principal"], denied["outcome"]) == ("User:alice", "TOPIC_AUTHORIZATION_FAILED")

    client = ClusterClient(read_settings(ruled.librdkafka(*ALICE)))
    response = client.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    client.close()
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    seen = trail.find(api="DescribeAcls", type="denied")
    assert (seen["operation"], seen["resource_type"], seen["host"]) == ("DESCRIBE", "cluster", "127.0.0.1")

    stranger = Producer(ruled.librdkafka("alice", "not-hers", "PLAIN") | {"log_level": "0"})
    stranger.poll(0)
    refused = trail.find(type="sign_in_refused")
    assert (refused["resource"], refused["details"]) == ("alice", {"mechanism": "PLAIN"})
    del stranger
    port = int(ruled.servers().rpartition(":")[2].split(",")[0])
    with socket.create_connection(("localhost", port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(20)
        with suppress(ConnectionError):
            plain.recv(1)
    stumbled = trail.find(outcome="TLS_HANDSHAKE_FAILED")
    assert (stumbled["type"], stumbled["resource_type"], stumbled["message"]) == (
        "sign_in_refused",
        "listener",
        "HTTP_REQUEST",
    )
    trail.find(api="CreateAcls", type="change")
    for secret in (PASSWORD, "alice-secret", "not-hers"):
        assert secret not in trail.text
    config = ruled.directory / "admin.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in ruled.librdkafka().items()))
    shown = run_penstock("security", "audit", "--command-config", str(config), "--resource", topic)
    assert shown.returncode == 0, shown.stderr
    assert f"CreateTopics  topic {topic}  OK" in shown.stdout
    # Both brokers write it, whichever of them leads it.
    assert {event["broker"] for event in trail.events} <= {1, 2}


def test_only_nodes_write_the_audit_trail(ruled: SecureCluster, trail: Trail) -> None:
    trail.find(type="change")
    failures: list[KafkaError] = []
    alice = Producer(ruled.librdkafka(*ALICE))
    alice.produce("_audit", b"forged", on_delivery=lambda error, _: failures.append(error))
    assert alice.flush(30) == 0
    assert failures[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_producers_wait_for_a_group_whose_coordinator_is_another_broker(ruled: SecureCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(ruled.librdkafka())
    config = {"penstock.backpressure.groups": "slow", "penstock.backpressure.lag.max": "10"}
    new_topic = NewTopic(topic, 2, replica_assignment=[[1], [2]], config=config)
    admin.create_topics([new_topic])[topic].result(30)
    producer = Producer(ruled.librdkafka())
    for partition in (0, 1):
        for _ in range(50):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    reader = Consumer(ruled.librdkafka() | {"group.id": "slow"})
    reader.commit(offsets=[TopicPartition(topic, partition, 1) for partition in (0, 1)], asynchronous=False)
    for partition in (0, 1):
        throttled: list[Any] = []
        held = Producer(ruled.librdkafka() | {"throttle_cb": throttled.append, "linger.ms": "0"})

        def is_held(held: Producer = held, partition: int = partition, throttled: list[Any] = throttled) -> bool:
            held.produce(topic, b"x", partition=partition)
            assert held.flush(30) == 0
            return any(event.throttle_time > 0.5 for event in throttled)

        wait_for(is_held)
    reader.close()


def test_an_address_over_its_quota_is_disconnected(ruled: SecureCluster) -> None:
    host, _, port = ruled.servers("SASL_PLAINTEXT").partition(",")[0].partition(":")
    anyone = EntityData("ip", None)
    set_quota(ruled, anyone, "connection_creation_rate", 1)
    try:

        def is_closed_unasked() -> bool:
            with socket.create_connection((host, int(port)), 10) as tried:
                tried.settimeout(3)
                try:
                    return tried.recv(1) == b""
                except TimeoutError:
                    return False

        # A dozen or so are free, since the windows before count as empty ones.
        sockets = [socket.create_connection((host, int(port)), 10) for _ in range(30)]
        wait_for(is_closed_unasked)
        for one in sockets:
            one.close()
    finally:
        # The client that lifts it may be disconnected as well.
        wait_for(lambda: _is_lifted(ruled, anyone))


def _is_lifted(cluster: SecureCluster, entity: EntityData) -> bool:
    try:
        set_quota(cluster, entity, "connection_creation_rate", None)
    except (NoAnswer, NotServed):
        return False
    return True


@pytest.mark.slow
@pytest.mark.java
def test_kafkas_tools_meet_the_rules(ruled: SecureCluster, tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config = tmp_path / "client.properties"
    jaas = f'{login} username="{ADMIN}" password="{PASSWORD}";'
    config.write_text(java_properties(ruled.librdkafka(), jaas, ["client.id=java-tool"]))
    servers = ("--bootstrap-server", ruled.servers(), "--command-config", str(config))
    limited = ("--entity-type", "clients", "--entity-name", "java-tool")
    done = kafka_tool("kafka-configs", *servers, "--alter", "--add-config", "controller_mutation_rate=0.1", *limited)
    assert done.returncode == 0, done.stdout + done.stderr
    address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    done = kafka_tool("kafka-configs", *servers, "--alter", "--add-config", "connection_creation_rate=20", *address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "connection_creation_rate=20.0" in kafka_tool("kafka-configs", *servers, "--describe", *address).stdout
    create = ("kafka-topics", *servers, "--create", "--replication-factor", "1", "--partitions", "5", "--topic")
    first, second = (f"t-{uuid.uuid4().hex[:8]}" for _ in range(2))
    assert kafka_tool(*create, first).returncode == 0
    refused = kafka_tool(*create, second)
    assert refused.returncode != 0
    assert "throttling quota has been exceeded" in (refused.stdout + refused.stderr).lower()
    rule = "penstock.topic.partitions.max=4"
    brokers = ("--entity-type", "brokers", "--entity-default")
    done = kafka_tool("kafka-configs", *servers, "--alter", "--add-config", rule, *brokers)
    assert done.returncode == 0, done.stdout + done.stderr
    set_quota(ruled, EntityData("client-id", "java-tool"), "controller_mutation_rate", None)
    refused = kafka_tool(*create, second)
    assert "ask for at most 4" in refused.stdout + refused.stderr
