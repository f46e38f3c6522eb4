"""Kafka Streams in a secured cluster: a tenant's program makes its own topics, within its names and limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from tenant_clients import ACCESS_LISTS, TIMEOUT_S, Commands, Tenant, eventually, find_coordinators, produce

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.core.group.streams.status import StatusCode
from penstock.model.errors import ErrorCode
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from support.kafka_tools import streams_missing
from support.secure_cluster import SecureCluster, java_properties
from support.streams_program import VERSION, Program

LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PROGRAM_S = 120.0
# The coordinator's partition may not be loaded yet.
STARTING = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
MEMBER = "a-member-of-a-streams-group"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    directory = tmp_path_factory.mktemp("streams-of-tenants")
    with SecureCluster(directory, settings=ACCESS_LISTS) as cluster:
        find_coordinators(cluster)
        yield Commands(cluster, directory)


def with_topics(commands: Commands, name: str, *limits: str) -> Tenant:
    """A tenant with a source and a sink."""
    tenant = commands.tenant(name, *limits)
    topics = [f"{name}.lines", f"{name}.counts"]
    admin = AdminClient(tenant.settings)
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(TIMEOUT_S)
    return tenant


def topics_of(tenant: Tenant) -> set[str]:
    return set(AdminClient(tenant.settings).list_topics(timeout=TIMEOUT_S).topics)


def java(tenant: Tenant) -> dict[str, str]:
    """The settings of a tenant's Java program."""
    settings = tenant.settings
    jaas = f'{LOGIN} username="{settings["sasl.username"]}" password="{settings["sasl.password"]}";'
    lines = java_properties(settings | {"sasl.mechanism": "SCRAM-SHA-512"}, jaas).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_program_counts_each_word_once(commands: Commands, tmp_path: Path, protocol: str) -> None:
    if (missing := streams_missing(VERSION)) is not None:
        pytest.skip(missing)
    name = f"with-{protocol}"
    tenant = with_topics(commands, name)
    assert produce(tenant.settings, f"{name}.lines", 50, size=3) == []
    settings = java(tenant) | {"group.protocol": protocol, "processing.guarantee": "exactly_once_v2"}
    servers = settings.pop("bootstrap.servers", tenant.settings["bootstrap.servers"])
    program = Program(servers, f"{name}.app", f"{name}.lines", f"{name}.counts", tmp_path / "state", settings)
    try:
        counted(tenant, f"{name}.counts", 50, program)
    finally:
        program.end()
    assert {f"{name}.app-words-repartition", f"{name}.app-counts-changelog"} <= topics_of(tenant)


def counted(tenant: Tenant, topic: str, expected: int, program: Program) -> None:
    """Wait until the sink has counted the one word so often."""
    consumer = Consumer(
        tenant.settings
        | {"group.id": f"{tenant.name}.table", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe([topic])
    deadline, count = time.monotonic() + PROGRAM_S, 0
    try:
        while count != expected:
            assert program.is_running, program.lines[-5:]
            assert time.monotonic() < deadline, (count, program.lines[-5:])
            for record in consumer.consume(100, 0.2):
                assert record.error() is None, record.error()
                assert record.key() == b"xxx"
                count = int.from_bytes(record.value() or b"", "big")
    finally:
        consumer.close()


def topology(tenant: str, *changelogs: str) -> Topology:
    return Topology(1, [Subtopology("0", [f"{tenant}.lines"], state_changelog_topics=[*map(TopicInfo, changelogs)])])


def beat(client: ClusterClient, group: str, wanted: Topology) -> StreamsGroupHeartbeatResponse:
    """Join a streams group; how often that is asked is up to the caller."""
    request = StreamsGroupHeartbeatRequest(
        *(group, MEMBER, 0, 0),
        rebalance_timeout_ms=60_000,
        topology=wanted,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="a-process",
        client_tags=[],
    )
    answer: StreamsGroupHeartbeatResponse = client.ask(request)
    return answer


def test_a_program_makes_no_more_topics_than_its_tenant_may_have(commands: Commands) -> None:
    tenant = with_topics(commands, "small", "--topics", "3")
    wanted = topology("small", *(f"small.app-{number}-changelog" for number in range(4)))
    with ClusterClient(read_settings(tenant.settings)) as client:

        def status() -> str:
            answer = beat(client, "small.app", wanted)
            assert answer.error_code in (0, *STARTING), answer.error_message
            rows = [row for row in answer.status or () if row.status_code == StatusCode.MISSING_INTERNAL_TOPICS]
            return rows[0].status_detail if rows else ""

        found = eventually(status, lambda text: "Creation failed" in text)
    assert "tenant small may have 3 topics" in found
    assert len(topics_of(tenant)) == 3


def test_a_program_makes_and_reads_no_topics_of_others(commands: Commands) -> None:
    mine, other = with_topics(commands, "mine"), with_topics(commands, "other")
    before = topics_of(other)
    with ClusterClient(read_settings(mine.settings)) as client:
        refusals: dict[str, Callable[[], StreamsGroupHeartbeatResponse]] = {
            "a changelog of another's": lambda: beat(client, "mine.app", topology("mine", "other.changelog")),
            "a changelog of nobody's": lambda: beat(client, "mine.app", topology("mine", "nobodys.changelog")),
            "another's source": lambda: beat(client, "mine.app", topology("other")),
        }
        for what, ask in refusals.items():
            assert ask().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, what
        stolen = beat(client, "other.app", topology("mine"))
        assert stolen.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert topics_of(other) == before
