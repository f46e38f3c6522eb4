"""`penstock.Admin` administers Penstock's brokers and Kafka's alike."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import penstock
from penstock.client import PenstockError, TopicExists, UnknownTopic
from support.kafka_broker import kafka_broker


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=(pytest.mark.java, pytest.mark.slow))])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of each kind."""
    if request.param == "penstock":
        yield request.getfixturevalue("penstock_cluster").bootstrap_servers
        return
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with kafka_broker(tmp_path_factory.mktemp("kafka"), settings) as broker:
        yield broker.address


@pytest.fixture
def admin(bootstrap: str) -> Iterator[penstock.Admin]:
    with penstock.Admin(bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: penstock.Admin) -> str:
    """A topic with two partitions, and three records in the first of them."""
    name = f"admin-{uuid.uuid4().hex[:8]}"
    assert admin.create_topic(name, 2, 1, {"retention.ms": "3600000"})
    with penstock.Producer(admin.connection) as producer:
        for number in range(3):
            producer.send(name, None, str(number), partition=0)
    return name


def test_topics_are_described_changed_and_deleted(admin: penstock.Admin, topic: str) -> None:
    assert topic in admin.list_topics()
    described = admin.describe_topic(topic)
    assert (described.partition_count, described.replication_factor, len(described.id)) == (2, 1, 22)
    assert described.config["retention.ms"] == "3600000"
    [broker] = admin.describe_cluster().brokers
    assert {each.leader for each in described.partitions} == {broker.id}
    with pytest.raises(TopicExists) as exists:
        admin.create_topic(topic)
    assert exists.value.code == "TOPIC_ALREADY_EXISTS"
    admin.add_partitions(topic, 3)
    admin.alter_topic(topic, {"retention.ms": None, "max.message.bytes": "1000"})
    changed = admin.describe_topic(topic).config
    assert (changed["retention.ms"], changed["max.message.bytes"]) == ("604800000", "1000")
    with pytest.raises(PenstockError) as invalid:
        admin.alter_topic(topic, {"no.such.setting": "1"})
    assert invalid.value.code == "INVALID_CONFIG"
    assert admin.delete_topic(topic)
    with pytest.raises(UnknownTopic) as unknown:
        admin.delete_topic(topic)
    assert unknown.value.code == "UNKNOWN_TOPIC_OR_PART"


def test_offsets_and_trims(admin: penstock.Admin, topic: str) -> None:
    assert admin.offsets(topic) == {(topic, 0): 3, (topic, 1): 0}
    assert admin.offsets(topic, 0) == {(topic, 0): 0, (topic, 1): -1}
    admin.trim(topic, {0: 2})
    assert admin.offsets(topic, "earliest") == {(topic, 0): 2, (topic, 1): 0}


def test_offsets_of_groups(admin: penstock.Admin, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    assert admin.describe_group(group).state == "dead"
    admin.set_group_offsets(group, {(topic, 0): 1})
    assert admin.group_offsets(group) == {(topic, 0): 1}
    assert admin.group_lag(group, [topic]) == {(topic, 0): 2, (topic, 1): 0}
    assert admin.list_groups()[group] == admin.describe_group(group).state == "empty"
    admin.delete_group(group)
    assert group not in admin.list_groups()
    with pytest.raises(PenstockError) as gone:
        admin.delete_group(group)
    assert gone.value.code == "GROUP_ID_NOT_FOUND"


def test_members_of_groups(admin: penstock.Admin, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    with penstock.Consumer(admin.connection, group=group, protocol="classic") as consumer:
        consumer.subscribe(topic)
        assert consumer.poll(60) is not None
        [member] = admin.describe_group(group).members
    assert member.partitions == ((topic, 0), (topic, 1))
    assert admin.describe_group(group).members == ()


def test_users(admin: penstock.Admin) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    admin.set_password(user, "secret")
    assert admin.list_users()[user] == ["SCRAM-SHA-512"]
    admin.delete_user(user)
    assert user not in admin.list_users()
