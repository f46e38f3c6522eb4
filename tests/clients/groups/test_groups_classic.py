"""Classic groups of every client while members join, leave, crash and stall: nothing is lost, nothing is shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from group_checker import violations
from group_members.crew import Crew

from penstock.testing import Cluster
from support.kafkajs import kafkajs_missing

SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "5",
}


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


def test_one_to_eight_members_come_and_go(cluster: Cluster, tmp_path: Path) -> None:
    with Crew(cluster, tmp_path, "grow-and-shrink") as crew:
        crew.feed()
        members = [crew.join("confluent")]
        crew.wait_until_shared(members)
        members += [crew.join("confluent") for _ in range(3)]
        crew.wait_until_shared(members)
        members += [crew.join("confluent") for _ in range(4)]
        crew.wait_until_shared(members)
        crew.leave(members.pop(0))
        crew.kill(members.pop(0))
        stalled = members.pop(0)
        crew.stall(stalled)
        crew.wait_until_shared(members)
        crew.resume(stalled)
        crew.wait_until_shared([*members, stalled])
        judge(crew)


@pytest.mark.parametrize(
    "clients",
    [
        pytest.param(["kafka-python"], id="kafka-python", marks=pytest.mark.slow),
        pytest.param(["aiokafka"], id="aiokafka"),
        pytest.param(["kafkajs"], id="kafkajs"),
        pytest.param(
            ["java", "confluent", "java", "kafka-python"],
            id="java-and-others",
            marks=[pytest.mark.java, pytest.mark.slow],
        ),
    ],
)
def test_members_crash_and_stall(cluster: Cluster, tmp_path: Path, clients: list[str]) -> None:
    if "kafkajs" in clients and (missing := kafkajs_missing()) is not None:
        pytest.skip(missing)
    with Crew(cluster, tmp_path, f"crash-and-stall-{'-'.join(clients)}") as crew:
        crew.feed()
        members = [crew.join(clients[number % len(clients)]) for number in range(4)]
        crew.wait_until_shared(members)
        stalled = members.pop(0)
        crew.stall(stalled)
        crew.kill(members.pop(0))
        crew.wait_until_shared(members)
        crew.resume(stalled)
        members.append(stalled)
        members.append(crew.join(clients[0]))
        crew.wait_until_shared(members)
        crew.leave(members.pop(0))
        crew.wait_until_shared(members)
        judge(crew)
