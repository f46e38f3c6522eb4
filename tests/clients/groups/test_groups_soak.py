"""Groups under random harm for GROUP_SOAK_SECONDS; GROUP_SOAK_SEED makes the same choices again."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from group_checker import violations
from group_members.crew import Crew, Running

from penstock.testing import Cluster

SOAK_S = float(os.environ.get("GROUP_SOAK_SECONDS", "0"))
SEED = int(os.environ.get("GROUP_SOAK_SEED", "1"))
MEMBERS_MAX = 8
CONSUMER: dict[str, Any] = {"protocol": "consumer", "assignor": "uniform"}
RANGE: dict[str, Any] = {"assignor": "range"}
CASTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "classic": [("confluent", RANGE), ("kafka-python", RANGE), ("aiokafka", RANGE), ("java", RANGE)],
    "cooperative": [("confluent", {"assignor": "cooperative-sticky"}), ("java", {"assignor": "cooperative-sticky"})],
    "consumer": [("confluent", CONSUMER), ("java", CONSUMER)],
    "both": [("confluent", CONSUMER), ("confluent", RANGE)],
}
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(SOAK_S * 2 + 120),
    pytest.mark.skipif(not SOAK_S, reason="a soak of groups: set GROUP_SOAK_SECONDS"),
]


class Harm:
    """Does one thing to the group at a time."""

    def __init__(self, crew: Crew, cast: list[tuple[str, dict[str, Any]]], choices: random.Random) -> None:
        self._crew = crew
        self._cast = cast
        self._choices = choices
        self._present: list[Running] = []
        self._stalled: list[Running] = []

    def step(self) -> None:
        present, choices = self._present, self._choices
        deeds = ["node"] if choices.random() < 0.05 else []
        deeds += ["join"] * (3 if len(present) < 3 else 1) if len(present) + len(self._stalled) < MEMBERS_MAX else []
        deeds += ["leave", "kill", "stall"] if len(present) > 2 else []
        deeds += ["resume"] * 2 if self._stalled else []
        getattr(self, choices.choice(deeds))()

    def join(self) -> None:
        client, orders = self._choices.choice(self._cast)
        self._present.append(self._crew.join(client, **orders))

    def leave(self) -> None:
        self._crew.leave(self._pick(self._present))

    def kill(self) -> None:
        self._crew.kill(self._pick(self._present))

    def stall(self) -> None:
        member = self._pick(self._present)
        self._crew.stall(member)
        self._stalled.append(member)

    def resume(self) -> None:
        member = self._pick(self._stalled)
        self._crew.resume(member)
        self._present.append(member)

    def node(self) -> None:
        self._crew.cluster.kill()
        self._crew.cluster.start()

    def end(self) -> None:
        """Let everybody go on who was stopped."""
        while self._stalled:
            self.resume()

    def _pick(self, members: list[Running]) -> Running:
        return members.pop(self._choices.randrange(len(members)))


@pytest.mark.parametrize("kind", CASTS)
def test_a_group_survives_random_harm(tmp_path: Path, kind: str) -> None:
    choices = random.Random(f"{SEED}-{kind}")
    with Cluster(SETTINGS) as cluster, Crew(cluster, tmp_path, f"soak-{kind}") as crew:
        crew.feed(1000)
        harm = Harm(crew, CASTS[kind], choices)
        until = time.monotonic() + SOAK_S
        while time.monotonic() < until:
            harm.step()
            time.sleep(choices.uniform(0.2, 4))
        harm.end()
        harm.join()
        crew.stop_feeding()
        crew.wait_until_read(90)
        crew.leave_all()
        found = violations(crew.histories(), crew.ends(), crew.offsets_records(), crew.group)
        assert not found, "\n".join([f"seed {SEED}", *found, crew.tails()])
