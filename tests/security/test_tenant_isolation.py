"""Two tenants on three secured nodes: neither learns what the other has, and their limits hold in the whole cluster."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from tenant_clients import ACCESS_LISTS, TIMEOUT_S, Commands, Tenant, eventually, produce

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from support.kafka_tools import kafka_tool
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster, java_properties

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
    from kafka.errors import PolicyViolationError  # type: ignore[import-untyped]

pytestmark = pytest.mark.slow

GROUP, TRANSACTION, TOPIC_RESOURCE = 0, 1, 2
LATEST = -1


class Names(NamedTuple):
    """The names that a request may be about."""

    topic: str
    topic_id: bytes
    group: str
    transactional_id: str


QUESTIONS: dict[str, Callable[[Names], Any]] = {
    "topic": lambda of: MetadataRequest([MetadataRequestTopic(name=of.topic)], allow_auto_topic_creation=False),
    "topic, with creation": lambda of: MetadataRequest([MetadataRequestTopic(name=of.topic)]),
    "partitions": lambda of: DescribeTopicPartitionsRequest([TopicRequest(of.topic)]),
    "settings": lambda of: DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, of.topic, None)]),
    "offsets": lambda of: ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic(of.topic, [ListOffsetsPartition(0, -1, LATEST)])]
    ),
    "coordinator of a group": lambda of: FindCoordinatorRequest("", GROUP, [of.group]),
    "coordinator of a transaction": lambda of: FindCoordinatorRequest("", TRANSACTION, [of.transactional_id]),
    "group": lambda of: DescribeGroupsRequest([of.group]),
    "consumer group": lambda of: ConsumerGroupDescribeRequest([of.group]),
    "committed offsets": lambda of: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(of.group, topics=None)]),
    "deletion of a group": lambda of: DeleteGroupsRequest([of.group]),
    "transaction": lambda of: DescribeTransactionsRequest([of.transactional_id]),
}


class World(NamedTuple):
    """A cluster, its two tenants, and what the first of them has."""

    commands: Commands
    acme: Tenant
    beta: Tenant
    names: Names


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("two-tenants")
    with SecureCluster(directory, nodes=3, settings=ACCESS_LISTS) as cluster:
        commands = Commands(cluster, directory)
        acme, beta = commands.tenant("acme", "--produce", "50MB/s"), commands.tenant("beta")
        admin = AdminClient(acme.settings)
        admin.create_topics([NewTopic("acme.orders", 3, 3)])["acme.orders"].result(TIMEOUT_S)
        other = AdminClient(beta.settings)
        other.create_topics([NewTopic("beta.t", 1, 3)])["beta.t"].result(TIMEOUT_S)
        writer = Producer({**acme.settings, "transactional.id": "acme.writer"})
        writer.init_transactions(TIMEOUT_S)
        writer.begin_transaction()
        for number in range(30):
            writer.produce("acme.orders", str(number))
        writer.commit_transaction(TIMEOUT_S)
        assert len(read(acme, "acme.orders", "acme.readers", 30)) == 30
        described = admin.describe_topics(TopicCollection(["acme.orders"]))["acme.orders"].result(TIMEOUT_S)
        topic_id = described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()
        raw = b"".join((half % 2**64).to_bytes(8) for half in topic_id)
        yield World(commands, acme, beta, Names("acme.orders", raw, "acme.readers", "acme.writer"))


def read(tenant: Tenant, topic: str, group: str, count: int) -> list[bytes]:
    consumer = Consumer({**tenant.settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(count, 1.0) if message.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_a_tenant_cannot_tell_what_the_other_has_from_what_does_not_exist(world: World) -> None:
    invented = Names("acme.nothing", bytes(15) + b"\x07", "acme.nobody", "acme.never")

    def answer(client: ClusterClient, question: Callable[[Names], Any], of: Names) -> str:
        text = repr(client.ask(question(of)))
        for value in of:
            text = text.replace(repr(value), "?").replace(str(value), "?")
        return text

    with (
        ClusterClient(read_settings(world.beta.settings)) as beta,
        ClusterClient(read_settings(world.acme.settings)) as acme,
    ):
        for name, question in QUESTIONS.items():
            assert answer(beta, question, world.names) == answer(beta, question, invented), name
        for name in ("topic", "partitions", "settings"):
            assert answer(acme, QUESTIONS[name], world.names) != answer(acme, QUESTIONS[name], invented), name
        by_id = MetadataRequest([MetadataRequestTopic(world.names.topic_id, None)])
        (own,) = acme.ask(by_id).topics
        assert (own.error_code, own.name) == (0, "acme.orders")
        # An id is as good as a secret: who knows it learns that there is a topic, as in Kafka, and nothing else.
        (others,) = beta.ask(by_id).topics
        assert (others.error_code, others.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        assert not others.partitions


def test_lists_and_patterns_show_a_tenant_its_own_only(world: World) -> None:
    admin = AdminClient(world.beta.settings)
    assert set(admin.list_topics(timeout=TIMEOUT_S).topics) == {"beta.t"}
    groups = admin.list_consumer_groups().result(TIMEOUT_S)
    assert [group.group_id for group in groups.valid if group.group_id.startswith("acme.")] == []
    produce(world.beta.settings, "beta.t", 3, size=10)
    assert set(read(world.beta, "^.*", "beta.pattern", 3)) == {b"x" * 10}
    consumer = KafkaConsumer(
        bootstrap_servers=world.beta.settings["bootstrap.servers"].split(","),
        group_id="beta.python",
        **python(world.beta),
    )
    try:
        assert consumer.topics() == {"beta.t"}
        consumer.subscribe(pattern=".*")
        eventually(lambda: (consumer.poll(500), consumer.assignment())[1], bool)
        assert {partition.topic for partition in consumer.assignment()} == {"beta.t"}
    finally:
        consumer.close()


def python(tenant: Tenant) -> dict[str, str]:
    """The settings of kafka-python."""
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": tenant.settings["ssl.ca.location"],
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": tenant.settings["sasl.username"],
        "sasl_plain_password": tenant.settings["sasl.password"],
    }


def test_nothing_of_the_other_can_be_written_read_or_taken(world: World) -> None:
    beta = world.beta.settings
    errors = produce(beta, "acme.orders", 1, **{"allow.auto.create.topics": "false"})
    assert [error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    admin = AdminClient(beta)
    stolen = admin.create_topics([NewTopic("acme.stolen", 1, 1)])["acme.stolen"]
    removed = admin.delete_topics(["acme.orders"])["acme.orders"]
    for future in (stolen, removed):
        with pytest.raises(KafkaException) as caught:
            future.result(TIMEOUT_S)
        assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**beta, "group.id": "acme.readers"})
    consumer.subscribe(["beta.t"])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    thief = Producer({**beta, "transactional.id": "acme.writer"})
    with pytest.raises(KafkaException) as caught:
        thief.init_transactions(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_storage_is_that_of_all_leaders_and_counted_once(world: World) -> None:
    gamma = world.commands.tenant("gamma", "--storage", "2MB")
    admin = AdminClient(gamma.settings)
    admin.create_topics([NewTopic("gamma.t", 6, 3)])["gamma.t"].result(TIMEOUT_S)
    producer = KafkaProducer(
        bootstrap_servers=gamma.settings["bootstrap.servers"].split(","), acks="all", **python(gamma)
    )

    def fill() -> None:
        for number in range(600):
            producer.send("gamma.t", b"x" * 10_000, partition=number % 6).get(TIMEOUT_S)

    try:
        with pytest.raises(PolicyViolationError):
            fill()
    finally:
        producer.close()
    shown = eventually(lambda: world.commands.described("gamma"), lambda row: row["storage_bytes"]["used"] > 1_900_000)
    # The others may append for a while before they know. If each counted only what it leads, it would be
    # three times the limit, and if replicas counted, a third.
    assert shown["storage_bytes"]["used"] < 4_000_000
    assert {error.code() for error in produce(gamma.settings, "gamma.t", 30, size=100_000)} == {
        KafkaError.POLICY_VIOLATION
    }
    assert produce(world.acme.settings, "acme.orders", 30, size=100_000) == []


@pytest.mark.java
def test_kafkas_own_tools_show_what_a_tenant_is(world: World, tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config = tmp_path / "admin.properties"
    jaas = f'{login} username="{ADMIN}" password="{PASSWORD}";'
    config.write_text(java_properties(world.commands.cluster.librdkafka(), jaas))

    def tool(name: str, *arguments: str) -> str:
        servers = world.commands.cluster.servers()
        done = kafka_tool(name, "--bootstrap-server", servers, "--command-config", str(config), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    entity = ("--entity-type", "users", "--entity-name", "acme")
    described = tool("kafka-configs", "--describe", *entity)
    for shown in ("tenant_topics=100.0", "tenant_partitions=1000.0", "producer_byte_rate=5.0E7", "SCRAM-SHA-512"):
        assert shown in described
    tool("kafka-configs", "--alter", "--add-config", "producer_byte_rate=60000000", *entity)
    assert world.commands.described("acme")["produce"]["limit_per_broker"] == 60_000_000
    listed = tool("kafka-acls", "--list", "--principal", "User:acme")
    assert "patternType=PREFIXED" in listed
