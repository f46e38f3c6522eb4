"""Apache Kafka's own tools list, describe, reset and delete our groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from group_members.crew import Crew

from penstock.testing import Cluster
from support.kafka_tools import kafka_tool

pytestmark = pytest.mark.java

RECORDS = 20
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker with no groups but those of this module."""
    with Cluster({"group.min.session.timeout.ms": "1000", "offsets.topic.num.partitions": "3"}) as running:
        yield running


def groups(cluster: Cluster, *arguments: str) -> str:
    """What kafka-consumer-groups prints; it must succeed."""
    done = kafka_tool("kafka-consumer-groups", "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout


def rows(text: str) -> list[dict[str, str]]:
    """A printed table as dictionaries by its headings."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heading = next(index for index, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[heading], line, strict=False)) for line in lines[heading + 1 :]]


def commit(cluster: Cluster, group: str, topic: str, *offsets: int) -> None:
    """Leave a group without members behind that has committed these offsets."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def committed(cluster: Cluster, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    offsets = [each.offset for each in consumer.committed(wanted, timeout=10)]
    consumer.close()
    return offsets


def hourly_topic(cluster: Cluster) -> tuple[str, int]:
    """A topic of two partitions with one record an hour; its name, and the time of the first record."""
    topic = cluster.create_topic(partitions=2)
    start_ms = int(time.time() * 1000) - RECORDS * HOUR_MS
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        for partition in range(2):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=start_ms + number * HOUR_MS)
    producer.flush()
    return topic, start_ms


def test_groups_are_listed_and_described(cluster: Cluster, tmp_path: Path) -> None:
    topic, _ = hourly_topic(cluster)
    commit(cluster, "resting", topic, 5, 7)
    with Crew(cluster, tmp_path, "at-work", partitions=4) as crew, ThreadPoolExecutor(3) as pool:
        crew.produce(10)
        members = [crew.join("confluent", session_timeout_ms=20_000), crew.join("java", session_timeout_ms=20_000)]
        crew.wait_until_shared(members)
        crew.wait_until_read()
        asked = [
            pool.submit(groups, cluster, *arguments)
            for arguments in (
                ("--list",),
                ("--list", "--state"),
                ("--describe", "--group", "at-work"),
                ("--describe", "--group", "at-work", "--members", "--verbose"),
                ("--describe", "--all-groups", "--state"),
                ("--describe", "--group", "resting", "--offsets"),
            )
        ]
        listed_by_other_tool = kafka_tool("kafka-groups", "--bootstrap-server", cluster.bootstrap_servers, "--list")
        listed, listed_states, described, members_described, states, resting = (answer.result() for answer in asked)
    assert {"at-work", "resting"} <= set(listed.split())
    assert {("at-work", "Stable"), ("resting", "Empty")} <= {
        (row["GROUP"], row["STATE"]) for row in rows(listed_states)
    }
    kinds = {line.split()[0]: line.split()[1] for line in listed_by_other_tool.stdout.splitlines()}
    assert (kinds["at-work"], kinds["resting"]) == ("Classic", "Classic"), listed_by_other_tool.stdout
    columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "HOST")
    offsets = sorted(tuple(row[column] for column in columns) for row in rows(described))
    assert offsets == [(str(partition), "10", "10", "0", "/127.0.0.1") for partition in range(4)]
    assert {row["CLIENT-ID"] for row in rows(members_described)} == {"confluent-0", "at-work-java-1"}
    assert [row["#PARTITIONS"] for row in rows(members_described)] == ["2", "2"]
    state = {row["GROUP"]: row for row in rows(states)}
    assert state["at-work"]["ASSIGNMENT-STRATEGY"] == "range", states
    assert sorted((row["CURRENT-OFFSET"], row["LAG"]) for row in rows(resting)) == [("5", "15"), ("7", "13")]


@pytest.mark.parametrize("chosen", [slice(3), pytest.param(slice(3, None), marks=pytest.mark.slow)], ids=["3", "rest"])
def test_offsets_are_reset_in_every_way(cluster: Cluster, tmp_path: Path, chosen: slice) -> None:
    topic, start_ms = hourly_topic(cluster)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime((start_ms + 7 * HOUR_MS) // 1000 + 1))
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,3\n{topic},1,4\n")
    ways: dict[tuple[str, ...], list[int]] = {
        ("--to-earliest",): [0, 0],
        ("--shift-by", "-2"): [3, 5],
        ("--to-datetime", moment): [8, 8],
        ("--to-latest",): [RECORDS, RECORDS],
        ("--to-current",): [5, 7],
        ("--to-offset", "11"): [11, 11],
        ("--to-offset", "999"): [RECORDS, RECORDS],
        ("--shift-by", "4"): [9, 11],
        ("--by-duration", "PT5H30M"): [15, 15],
        ("--from-file", str(plan)): [3, 4],
    }

    def reset(number: int, way: tuple[str, ...]) -> list[int]:
        group = f"reset-{topic}-{number}"
        commit(cluster, group, topic, 5, 7)
        target = () if way[0] == "--from-file" else ("--topic", topic)
        groups(cluster, "--reset-offsets", "--group", group, *target, *way, "--execute")
        return committed(cluster, group, topic, 2)

    tried = list(ways)[chosen]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(reset, range(len(tried)), tried))
    assert results == [ways[way] for way in tried]


def test_a_dry_run_changes_nothing_and_exports_a_plan(cluster: Cluster) -> None:
    topic, _ = hourly_topic(cluster)
    commit(cluster, "dry", topic, 5, 7)
    arguments = ("--reset-offsets", "--group", "dry", "--topic", f"{topic}:1", "--to-earliest")
    with ThreadPoolExecutor(2) as pool:
        shown = pool.submit(groups, cluster, *arguments, "--dry-run")
        exported = pool.submit(groups, cluster, *arguments, "--dry-run", "--export")
    assert [(row["PARTITION"], row["NEW-OFFSET"]) for row in rows(shown.result())] == [("1", "0")]
    assert [line.replace('"', "").split(",") for line in exported.result().split()] == [[topic, "1", "0"]]
    assert committed(cluster, "dry", topic, 2) == [5, 7]


def test_offsets_and_groups_are_deleted_unless_they_are_in_use(cluster: Cluster, tmp_path: Path) -> None:
    topic, _ = hourly_topic(cluster)
    commit(cluster, "goes", topic, 5, 7)
    commit(cluster, "loses-an-offset", topic, 5, 7)
    with Crew(cluster, tmp_path, "busy", partitions=2) as crew, ThreadPoolExecutor(3) as pool:
        crew.wait_until_shared([crew.join("confluent", session_timeout_ms=20_000)])
        server = ("kafka-consumer-groups", "--bootstrap-server", cluster.bootstrap_servers)
        busy = pool.submit(kafka_tool, *server, "--delete", "--group", "busy")
        subscribed = pool.submit(kafka_tool, *server, "--delete-offsets", "--group", "busy", "--topic", crew.topic)
        reset = pool.submit(
            kafka_tool, *server, "--reset-offsets", "--group", "busy", "--topic", crew.topic, "--to-latest", "--execute"
        )
        deleted = pool.submit(groups, cluster, "--delete", "--group", "goes")
        groups(cluster, "--delete-offsets", "--group", "loses-an-offset", "--topic", f"{topic}:0")
        assert "GroupNotEmptyException" in busy.result().stdout + busy.result().stderr
        assert "subscribed to" in subscribed.result().stdout + subscribed.result().stderr
        assert "inactive" in reset.result().stdout + reset.result().stderr
    assert "successful" in deleted.result()
    assert committed(cluster, "loses-an-offset", topic, 2) == [-1001, 7]
    listed = set(groups(cluster, "--list").split())
    assert "goes" not in listed
    assert {"busy", "loses-an-offset"} <= listed
