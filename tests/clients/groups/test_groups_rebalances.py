"""Rebalances that members should not notice: cooperative ones, and those of static members; and the node's death."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from group_checker import violations
from group_members.crew import SESSION_TIMEOUT_MS, Crew, Running

from penstock.testing import Cluster

pytestmark = pytest.mark.slow

SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "3",
}
# A commit travels behind the JoinGroup of its connection, so a wait for commits is a wait for rebalances.
COOPERATIVE: dict[str, Any] = {"assignor": "cooperative-sticky", "waits_for_commits": False}
# Less than half of what a rebalance takes that waits for a stalled member's session to end.
PAUSE_MAX_S = SESSION_TIMEOUT_MS / 1000 / 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker that believes in short sessions, and that may be killed."""
    with Cluster(SETTINGS) as running:
        yield running


def longest_pause_s(member: Running, partition: int, start: float, end: float) -> float:
    """The longest time between two moments in which the member processed nothing of the partition."""
    times = [event.time for event in member.said("processed") if event.partitions == (partition,)]
    inside = [start, *(moment for moment in times if start < moment < end), end]
    return max(later - earlier for earlier, later in pairwise(inside))


@pytest.mark.parametrize(
    "clients",
    [
        pytest.param(["confluent", "confluent", "confluent"], id="confluent"),
        pytest.param(["java", "confluent", "java"], id="java-and-confluent", marks=pytest.mark.java),
    ],
)
def test_a_cooperative_rebalance_does_not_stop_the_world(cluster: Cluster, tmp_path: Path, clients: list[str]) -> None:
    with Crew(cluster, tmp_path, f"cooperative-{'-'.join(clients)}") as crew:
        crew.feed()
        members = [crew.join(client, **COOPERATIVE) for client in clients]
        crew.wait_until_shared(members)
        stalled = members.pop()
        before = [member.owned() for member in members]
        start = time.time()
        crew.stall(stalled)
        # The rebalance for the new member waits for the stalled one, until its session ends.
        members.append(crew.join("confluent", **COOPERATIVE))
        crew.wait_until_shared(members)
        end = time.time()
        assert end - start > SESSION_TIMEOUT_MS / 1000 * 0.8
        for member, owned in zip(members, before, strict=False):
            for partition in owned & member.owned():
                assert longest_pause_s(member, partition, start, end) < PAUSE_MAX_S, crew.tails()
        crew.resume(stalled)
        crew.wait_until_shared([*members, stalled])
        crew.stop_feeding()
        crew.wait_until_read()
        crew.leave_all()
        assert not violations(crew.histories(), crew.ends(), crew.offsets_records(), crew.group), crew.tails()


@pytest.mark.parametrize(
    "client", ["confluent", "kafka-python", "aiokafka", pytest.param("java", marks=pytest.mark.java)]
)
def test_a_static_member_restarts_without_a_rebalance(cluster: Cluster, tmp_path: Path, client: str) -> None:
    patient = {"session_timeout_ms": 20_000}
    with Crew(cluster, tmp_path, f"static-{client}") as crew:
        crew.feed()
        other = crew.join("confluent", instance_id="other", **patient)
        first = crew.join(client, instance_id="first", **patient)
        crew.wait_until_shared([other, first])
        owned, seen = first.owned(), len(other.said("revoked"))
        crew.kill(first)
        second = crew.join(client, instance_id="first", **patient)
        crew.wait_until("the same partitions go on", lambda: second.owned() == owned and bool(second.said("committed")))
        crew.stop_feeding()
        crew.wait_until_read()
        assert len(other.said("revoked")) == seen, crew.tails()
        crew.leave_all()
        assert not violations(crew.histories(), crew.ends(), crew.offsets_records(), crew.group), crew.tails()


def test_a_second_member_with_the_same_instance_id_fences_the_first(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "fenced") as crew:
        first = crew.join("confluent", instance_id="only")
        crew.wait_until_shared([first])
        second = crew.join("confluent", instance_id="only")
        crew.wait_until_shared([second])
        crew.wait_until("the first one ends", lambda: first.process.poll() is not None)
        assert any("fenced" in event.error for event in first.said("error")), crew.tails()


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_members_live_through_the_death_of_the_node(cluster: Cluster, tmp_path: Path, client: str) -> None:
    with Crew(cluster, tmp_path, f"node-dies-{client}") as crew:
        crew.feed(500)
        members = [crew.join(client, session_timeout_ms=10_000) for _ in range(3)]
        crew.wait_until_shared(members)
        crew.wait_until("all commit", lambda: all(member.said("committed") for member in members))
        cluster.kill()
        killed_at = time.time()
        cluster.start()
        crew.wait_until(
            "all go on", lambda: all(member.said("committed")[-1].time > killed_at + 1 for member in members)
        )
        crew.stop_feeding()
        crew.wait_until_read()
        crew.leave_all()
        assert not violations(crew.histories(), crew.ends(), crew.offsets_records(), crew.group), crew.tails()


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_a_stopped_group_resumes_exactly_at_its_commit_after_a_kill(
    cluster: Cluster, tmp_path: Path, client: str
) -> None:
    with Crew(cluster, tmp_path, f"resumes-{client}") as crew:
        crew.produce(50)
        reader = crew.join(client)
        crew.wait_until_read()
        committed = crew.committed()
        crew.kill(reader)
        cluster.kill()
        cluster.start()
        crew.produce(50)
        assert crew.committed() == committed == dict.fromkeys(range(12), 50)
        later = crew.join(client)
        crew.wait_until_read()
        crew.leave(later)
        first = {}
        for event in later.said("processed"):
            first.setdefault(event.partitions[0], event.first)
        assert first == committed
