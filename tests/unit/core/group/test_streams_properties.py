"""Members of streams groups that come, go, crash, lag behind and miss answers: no task is ever active twice.

A client goes on with what it had until it has settled, and begins with what is new at once: the worst that is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from penstock.core.group.contract import GroupSettings
from penstock.core.group.modern.group import GroupState
from penstock.core.group.streams.group import StreamsGroup
from penstock.model.errors import ErrorCode
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from support.worlds.consumer_world import GROUP, ConsumerWorld

TOPOLOGY = Topology(
    0,
    [
        Subtopology("0", ["t"], repartition_sink_topics=["r"]),
        Subtopology("1", state_changelog_topics=[TopicInfo("c")], repartition_source_topics=[TopicInfo("r")]),
    ],
)
Tasks = set[tuple[str, int]]


@dataclass
class Client:
    """One thread of an application; `process` is where it runs."""

    name: str
    process: str
    epoch: int = 0
    active: Tasks = field(default_factory=set)
    standby: Tasks = field(default_factory=set)
    wanted: tuple[Tasks, Tasks] = field(default_factory=lambda: (set(), set()))

    def settle(self) -> None:
        """Revoke what is no longer its own."""
        self.active, self.standby = set(self.wanted[0]), set(self.wanted[1])


class Streams:
    """A coordinator with its clients."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = GroupSettings(streams_initial_rebalance_delay_ms=self.random.choice([0, 3_000]))
        self.world = ConsumerWorld(settings, seed, t=3, r=3, c=3)
        self.world.configs[GROUP] = {"streams.num.standby.replicas": str(self.random.randint(0, 1))}
        self.clients: dict[str, Client] = {}
        self.born = 0

    def step(self) -> None:
        kinds = [
            "join",
            "beat",
            "beat",
            "beat",
            "settle",
            "settle",
            "lose",
            "leave",
            "crash",
            "wait",
            "failover",
            "grow",
        ]
        kind = self.random.choice(kinds)
        client = self.random.choice([*self.clients.values()]) if self.clients else None
        if kind == "join" and len(self.clients) < 5:
            self.born += 1
            client = Client(f"m{self.born}", f"p{self.random.randint(0, 3)}")
            self.clients[client.name] = client
            self.beat(client)
        elif kind == "wait":
            self.world.advance(self.random.choice([500, 1_000, 4_000]))
        elif kind == "failover":
            self.world.reload()
        elif kind == "grow" and self.random.random() < 0.2:
            count = self.world.topics.counts["t"] + 1
            for name in ("t", "r", "c"):
                self.world.put_topic(name, count)
        elif client is not None and kind in ("beat", "lose"):
            self.beat(client, is_lost=kind == "lose")
        elif client is not None and kind == "settle":
            client.settle()
        elif client is not None and kind in ("leave", "crash"):
            del self.clients[client.name]
            if kind == "leave":
                self.ask(StreamsGroupHeartbeatRequest(GROUP, client.name, -1))
            else:
                # No other member learns of it before its session is over.
                self.world.advance(46_000)
                self.clients.clear()

    def ask(self, request: StreamsGroupHeartbeatRequest) -> Any:
        return self.world.answer("streams.heartbeat", request, 0).response

    def beat(self, client: Client, *, is_lost: bool = False) -> None:
        joins = client.epoch == 0
        request = StreamsGroupHeartbeatRequest(
            GROUP,
            client.name,
            client.epoch,
            rebalance_timeout_ms=600_000,
            topology=TOPOLOGY if joins else None,
            active_tasks=_rows(client.active),
            standby_tasks=_rows(client.standby),
            warmup_tasks=[],
            process_id=client.process,
        )
        response = self.ask(request)
        if is_lost:
            return
        if response.error_code:
            assert response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            client.epoch, client.wanted = 0, (set(), set())
            client.settle()
            return
        client.epoch = response.member_epoch
        if response.active_tasks is not None:
            client.wanted = (_tasks(response.active_tasks), _tasks(response.standby_tasks))
            client.active |= client.wanted[0]
            client.standby |= client.wanted[1]

    def check(self) -> None:
        actives = [task for client in self.clients.values() for task in client.active]
        assert len(actives) == len(set(actives)), "a task is active twice"
        copies = [
            (client.process, task)
            for client in self.clients.values()
            for tasks in (client.active, client.standby)
            for task in tasks
        ]
        assert len(copies) == len(set(copies)), "a process has a task twice"

    def converge(self) -> None:
        for _ in range(12):
            self.world.advance(3_000)
            for client in self.clients.values():
                self.beat(client)
                self.check()
                client.settle()
        group = self.world.shard._groups.get(GROUP)
        if self.clients:
            assert isinstance(group, StreamsGroup)
            assert group.state is GroupState.STABLE
            assert {task for client in self.clients.values() for task in client.active} == {
                (name, number) for name in ("0", "1") for number in range(self.world.topics.counts["t"])
            }


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(name, [number]) for name, number in sorted(tasks)]


def _tasks(rows: Any) -> Tasks:
    return {(row.subtopology_id, number) for row in rows for number in row.partitions}


@pytest.mark.parametrize("seed", range(60))
def test_no_task_is_active_twice_and_all_are_in_the_end(seed: int) -> None:
    streams = Streams(seed)
    for _ in range(120):
        streams.step()
        streams.check()
    streams.converge()
