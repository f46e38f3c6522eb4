"""Groups of the consumer protocol (KIP-848), and groups on their way from one protocol to the other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions
from group_checker import violations
from group_members.crew import Crew

from penstock.testing import Cluster
from penstock.wire.messages.list_groups import ListGroupsRequest
from support.kafka_tools import kafka_tool
from support.wire_client import WireClient

pytestmark = pytest.mark.slow

SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.regex.refresh.interval.ms": "10000",
    "offsets.topic.num.partitions": "3",
}
CONSUMER: dict[str, Any] = {"protocol": "consumer", "assignor": "uniform"}
SOAK_S = float(os.environ.get("GROUP_SOAK_SECONDS", "0"))
JAVA = pytest.mark.java
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker that believes in short sessions."""
    with Cluster(SETTINGS) as running:
        yield running


def judge(crew: Crew) -> None:
    """Let the members finish and leave; then nothing may be wrong with what they did."""
    crew.stop_feeding()
    crew.wait_until_read()
    crew.leave_all()
    found = violations(crew.histories(), crew.ends(), crew.offsets_records(), crew.group)
    assert not found, "\n".join([*found, crew.tails()])


def group_type(crew: Crew) -> str:
    """The protocol of the group, from ListGroups."""
    with WireClient(crew.cluster.bootstrap_servers) as wire:
        listed = wire.call(ListGroupsRequest(), 5).groups
    found: str = next(row.group_type for row in listed if row.group_id == crew.group)
    return found


def test_one_to_eight_members_come_and_go(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "consumer-grow-and-shrink") as crew:
        crew.feed()
        members = [crew.join("confluent", **CONSUMER)]
        crew.wait_until_shared(members)
        members += [crew.join("confluent", **CONSUMER) for _ in range(7)]
        crew.wait_until_shared(members)
        assert group_type(crew) == "consumer"
        crew.leave(members.pop(0))
        crew.kill(members.pop(0))
        stalled = members.pop(0)
        crew.stall(stalled)
        crew.wait_until_shared(members)
        crew.resume(stalled)
        crew.wait_until_shared([*members, stalled])
        judge(crew)


@JAVA
def test_java_and_librdkafka_share_a_group(cluster: Cluster, tmp_path: Path) -> None:
    orders = {"protocol": "consumer", "assignor": "range"}
    with Crew(cluster, tmp_path, "consumer-mixed") as crew:
        crew.feed()
        members = [crew.join(client, **orders) for client in ("java", "confluent", "java")]
        crew.wait_until_shared(members)
        crew.kill(members.pop(0))
        crew.wait_until_shared(members)
        members.append(crew.join("confluent", **orders))
        crew.wait_until_shared(members)
        crew.leave(members.pop(0))
        crew.wait_until_shared(members)
        judge(crew)


def test_a_static_member_keeps_its_partitions(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "consumer-static") as crew:
        crew.feed()
        other = crew.join("confluent", instance_id="other", **CONSUMER)
        first = crew.join("confluent", instance_id="first", **CONSUMER)
        crew.wait_until_shared([other, first])
        owned, seen = first.owned(), len(other.said("revoked"))
        crew.leave(first)
        second = crew.join("confluent", instance_id="first", **CONSUMER)
        crew.wait_until("the same partitions go on", lambda: second.owned() == owned and bool(second.said("committed")))
        assert len(other.said("revoked")) == seen, crew.tails()
        judge(crew)


def test_a_second_holder_of_an_instance_id_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "consumer-unreleased") as crew:
        first = crew.join("confluent", instance_id="only", **CONSUMER)
        crew.wait_until_shared([first])
        second = crew.join("confluent", instance_id="only", **CONSUMER)
        crew.wait_until("the second one is refused", lambda: bool(second.said("error")))
        assert "still used by another member" in second.said("error")[0].error, crew.tails()
        assert first.owned() == set(range(12))


def test_members_live_through_the_death_of_the_node(tmp_path: Path) -> None:
    with Cluster(SETTINGS) as cluster, Crew(cluster, tmp_path, "consumer-node-dies") as crew:
        crew.feed(500)
        members = [crew.join("confluent", **CONSUMER) for _ in range(3)]
        crew.wait_until_shared(members)
        crew.wait_until("all commit", lambda: all(member.said("committed") for member in members))
        cluster.kill()
        killed_at = time.time()
        cluster.start()
        crew.wait_until(
            "all go on", lambda: all(member.said("committed")[-1].time > killed_at + 1 for member in members)
        )
        judge(crew)


@pytest.mark.parametrize("client", ["confluent", pytest.param("java", marks=(JAVA, pytest.mark.slow))])
@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
def test_a_group_changes_its_protocol_while_it_works(
    cluster: Cluster, tmp_path: Path, client: str, direction: str
) -> None:
    classic = {"assignor": "cooperative-sticky" if client == "java" else "range"}
    before, after = (classic, CONSUMER) if direction == "upgrade" else (CONSUMER, classic)
    with Crew(cluster, tmp_path, f"{direction}-{client}") as crew:
        crew.feed()
        members = [crew.join(client, **before) for _ in range(2)]
        crew.wait_until_shared(members)
        for _ in range(2):
            members.append(crew.join(client, **after))
            crew.wait_until_shared(members)
            crew.leave(members.pop(0))
            crew.wait_until_shared(members)
        assert group_type(crew) == ("consumer" if direction == "upgrade" else "classic")
        judge(crew)


def test_a_pattern_finds_its_topics(cluster: Cluster) -> None:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "pattern",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    cluster.create_topic("pattern-a", partitions=2)
    cluster.create_topic("other-a")
    consumer = Consumer(settings)
    consumer.subscribe(["^pattern-.*"])
    try:
        wanted = {("pattern-a", 0), ("pattern-a", 1)}
        assert _assignment_becomes(consumer, wanted)
        if SOAK_S:
            # Patterns are looked at again at most every ten seconds, which is too long for every run.
            cluster.create_topic("pattern-b")
            assert _assignment_becomes(consumer, wanted | {("pattern-b", 0)})
    finally:
        consumer.close()


def _assignment_becomes(consumer: Consumer, wanted: set[tuple[str, int]]) -> bool:
    deadline = time.monotonic() + 20
    while {(each.topic, each.partition) for each in consumer.assignment()} != wanted:
        consumer.poll(0.1)
        if time.monotonic() > deadline:
            return False
    return True


def test_new_partitions_are_assigned(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "consumer-more-partitions", partitions=2) as crew:
        member = crew.join("confluent", **CONSUMER)
        crew.wait_until_shared([member])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.create_partitions([NewPartitions(crew.topic, 5)])[crew.topic].result(10)
        crew.wait_until("new partitions are assigned", lambda: member.owned() == set(range(5)))


@pytest.mark.slow
@JAVA
def test_kafkas_tool_describes_a_consumer_group(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "consumer-described", partitions=4) as crew:
        crew.produce(10)
        members = [crew.join("confluent", **CONSUMER), crew.join("java", **CONSUMER)]
        crew.wait_until_shared(members)
        crew.wait_until_read()
        server = ("kafka-consumer-groups", "--bootstrap-server", cluster.bootstrap_servers)
        described = kafka_tool(*server, "--describe", "--group", crew.group, "--members", "--verbose")
        state = kafka_tool(*server, "--describe", "--group", crew.group, "--state", "--verbose")
        offsets = kafka_tool(*server, "--describe", "--group", crew.group)
    assert described.stdout.count(f"{crew.topic}:") == 4, described.stdout + described.stderr
    assert "uniform" in state.stdout, state.stdout + state.stderr
    assert "Stable" in state.stdout
    assert offsets.stdout.count(f" {crew.topic} ") == 4, offsets.stdout + offsets.stderr


def test_a_member_that_changes_its_mind_at_once_can_join_again() -> None:
    """librdkafka cannot, if it has been asked to give up partitions when it leaves: the answer has to come later."""
    with Cluster({"group.coordinator.append.linger.ms": "1500"}) as cluster:
        topics = [cluster.create_topic(name) for name in ("first", "second", "third")]
        servers = cluster.bootstrap_servers
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "fickle", "group.protocol": "consumer", "log_level": 0}
        )
        try:
            consumer.subscribe(topics[:2])
            wait_for_topics(consumer, topics[:2])
            consumer.subscribe(topics[1:])
            time.sleep(0.2)
            consumer.unsubscribe()
            wait_for_topics(consumer, [])
            consumer.subscribe(topics[2:])
            wait_for_topics(consumer, topics[2:])
        finally:
            consumer.close()


def wait_for_topics(consumer: Consumer, topics: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sorted({row.topic for row in consumer.assignment()}) != sorted(topics):
        assert time.monotonic() < deadline, f"never had {topics}"
        message = consumer.poll(0.1)
        assert message is None or message.error() is None, message
