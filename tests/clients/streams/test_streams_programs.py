"""Programs with Apache Kafka's own Streams library: words counted through a repartition topic and a changelog."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.testing import Cluster
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from support.kafka_tools import kafka_tool, libraries_of, streams_missing
from support.streams_program import VERSION, Program
from support.wire_client import WireClient

APP, LINES, COUNTS = "wordcount", "lines", "counts"
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
PARTITIONS = 2
DEADLINE_S = 90.0
# Sessions and heartbeats are short, so that a killed program is missed soon.
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "0",
}

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if (missing := streams_missing(VERSION)) is not None:
        pytest.skip(missing)
    with Cluster(SETTINGS) as running:
        yield running


@contextmanager
def programs(cluster: Cluster, path: Path, count: int, **settings: str) -> Iterator[list[Program]]:
    started: list[Program] = []
    wanted = {name.replace("_", "."): value for name, value in settings.items()}
    try:
        for number in range(count):
            state = path / f"state-{number}"
            started.append(Program(cluster.bootstrap_servers, APP, LINES, COUNTS, state, wanted))
        yield started
    finally:
        for program in started:
            program.end()


class Table:
    """The counts in the sink topic, read by a consumer that sees what is committed."""

    def __init__(self, cluster: Cluster) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "table",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([COUNTS])
        self.counts: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        for record in self._consumer.consume(1000, 0.2):
            assert record.error() is None
            word, count = record.key(), record.value()
            assert word is not None
            assert count is not None
            self.counts[word.decode()] = int.from_bytes(count, "big")
        return self.counts

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def tables(cluster: Cluster, replicas: int = 1) -> Iterator[Table]:
    """The topics, and the table of one of them."""
    for topic in (LINES, COUNTS):
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=replicas)
    found = Table(cluster)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def table(cluster: Cluster) -> Iterator[Table]:
    with tables(cluster) as found:
        yield found


def produce(cluster: Cluster, lines: int) -> Counter[str]:
    """Lines of words; returns how often each word was among them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    counts: Counter[str] = Counter()
    for number in range(lines):
        words = WORDS[: 1 + number % len(WORDS)]
        counts.update(words)
        producer.produce(LINES, " ".join(words).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return counts


def until(is_so: Callable[[], object], running: list[Program]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert all(program.is_running for program in running), [program.lines[-5:] for program in running]
        assert time.monotonic() < deadline, [program.lines[-5:] for program in running]
        time.sleep(0.1)


def tool(cluster: Cluster, *arguments: str) -> str:
    done = kafka_tool(
        *("kafka-streams-groups", "--bootstrap-server", cluster.bootstrap_servers, *arguments),
        libraries=libraries_of(VERSION),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_words_are_counted(cluster: Cluster, table: Table, tmp_path: Path) -> None:
    expected = produce(cluster, 100)
    with programs(cluster, tmp_path, 1, group_protocol="streams") as running:
        until(lambda: table.read() == expected, running)
        assert running[0].tasks() == {"0_0", "0_1", "1_0", "1_1"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_each_word_counts_once_though_a_program_is_killed(
    cluster: Cluster, table: Table, tmp_path: Path, protocol: str
) -> None:
    settings = {"group_protocol": protocol, "processing_guarantee": "exactly_once_v2"}
    if protocol == "streams":
        alter(cluster, {"streams.num.standby.replicas": "1"})
    else:
        settings |= {"num_standby_replicas": "1", "session_timeout_ms": "6000"}
    expected = produce(cluster, 200)
    with programs(cluster, tmp_path, 2, **settings) as running:
        first, second = running
        until(lambda: table.read() == expected, running)
        until(lambda: first.tasks() and second.tasks() and len(first.tasks() | second.tasks()) == 4, running)
        until(lambda: first.tasks("s") and second.tasks("s"), running)
        assert not first.tasks() & first.tasks("s")
        expected += produce(cluster, 500)
        first.kill()
        expected += produce(cluster, 500)
        until(lambda: table.read() == expected, [second])
        until(lambda: len(second.tasks()) == 4, [second])


@pytest.mark.slow
def test_each_word_counts_once_though_the_coordinator_is_killed(tmp_path: Path) -> None:
    if (missing := streams_missing(VERSION)) is not None:
        pytest.skip(missing)
    # One partition, so that one broker coordinates both the group and its transactions.
    one = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with Cluster({**SETTINGS, **one}, nodes=3) as cluster, tables(cluster, replicas=3) as table:
        expected = produce(cluster, 200)
        settings = {"group_protocol": "streams", "processing_guarantee": "exactly_once_v2", "replication_factor": "3"}
        with programs(cluster, tmp_path, 2, **settings) as running:
            until(lambda: table.read() == expected, running)
            with WireClient(cluster.bootstrap_servers.split(",")[0]) as wire:
                found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[APP]), 6)
            cluster.kill(found.coordinators[0].node_id)
            expected += produce(cluster, 500)
            until(lambda: table.read() == expected, running)
            assert not any(line.startswith("failed") for program in running for line in program.lines)


@pytest.mark.slow
def test_a_program_moves_to_the_streams_protocol(cluster: Cluster, table: Table, tmp_path: Path) -> None:
    expected = produce(cluster, 100)
    # Classic members of applications do not leave: their sessions end.
    with programs(cluster, tmp_path, 1, group_protocol="classic", session_timeout_ms="6000") as running:
        until(lambda: table.read() == expected, running)
    until(lambda: (APP, "classic", "Empty") in groups(cluster), [])
    with programs(cluster, tmp_path / "next", 2, group_protocol="streams") as running:
        expected += produce(cluster, 100)
        until(lambda: table.read() == expected, running)
        until(lambda: all(program.tasks() for program in running), running)
        until(lambda: (APP, "streams", "Stable") in groups(cluster), running)


@pytest.mark.slow
def test_kafkas_tool_shows_and_changes_groups(cluster: Cluster, table: Table, tmp_path: Path) -> None:
    expected = produce(cluster, 100)
    with programs(cluster, tmp_path, 1, group_protocol="streams") as running:
        until(lambda: table.read() == expected, running)
        assert tool(cluster, "--list").split() == [APP]
        assert "Stable" in tool(cluster, "--describe", "--group", APP, "--state")
        members = tool(cluster, "--describe", "--group", APP, "--members", "--verbose")
        assert "ACTIVE: 0:[0,1]; 1:[0,1];" in members
        offsets = tool(cluster, "--describe", "--group", APP, "--offsets")
        assert {LINES, f"{APP}-words-repartition"} <= set(offsets.split())
    until(lambda: "Empty" in tool(cluster, "--list", "--state"), [])
    reset = tool(cluster, "--reset-offsets", "--group", APP, "--all-input-topics", "--to-earliest", "--execute")
    assert [line.split()[1:] for line in reset.splitlines() if LINES in line] == [[LINES, "0", "0"], [LINES, "1", "0"]]
    deleted = tool(cluster, "--delete", "--group", APP, "--delete-all-internal-topics")
    assert "was successful" in deleted
    assert tool(cluster, "--list").split() == []
    topics = kafka_tool("kafka-topics", "--bootstrap-server", cluster.bootstrap_servers, "--list").stdout.split()
    assert not [name for name in topics if name.startswith(APP)], topics


def groups(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Each group with its type and state."""
    with WireClient(cluster.bootstrap_servers) as wire:
        listed = wire.call(ListGroupsRequest(), 5).groups
    return [(row.group_id, row.group_type, row.group_state) for row in listed]


def alter(cluster: Cluster, settings: Mapping[str, str]) -> None:
    done = kafka_tool(
        *("kafka-configs", "--bootstrap-server", cluster.bootstrap_servers, "--alter"),
        *("--entity-type", "groups", "--entity-name", APP),
        *("--add-config", ",".join(f"{name}={value}" for name, value in settings.items())),
        libraries=libraries_of(VERSION),
    )
    assert done.returncode == 0, done.stdout + done.stderr
