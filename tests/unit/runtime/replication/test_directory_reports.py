"""Reports of where replicas are: which of them go to the controller, again and again until they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.metadata.image import LOST_DIRECTORY
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime import keep_running
from penstock.runtime.env import SystemEnv
from penstock.runtime.replication import directory_assignments
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)

NODE, EPOCH = 3, 77
TOPIC_ID = b"t" * 16
FIRST, SECOND = b"1" * 16, b"2" * 16


class World:
    """Partitions of one topic, each with a home and the directory that the controller knows."""

    node_id = NODE
    whole: frozenset[TopicPartition] = frozenset()
    directories = tuple(SimpleNamespace(directory_id=one, failure=None) for one in (FIRST, SECOND))

    def __init__(self, env: SystemEnv) -> None:
        self.homes: dict[int, Any] = {}
        self.known: dict[int, bytes] = {}
        self.epoch = 5
        self.replicas: dict[int, tuple[int, ...]] = {}
        self.partitions: dict[int, Any] = {}
        self.listeners: dict[str, Callable[[Any], None]] = {}
        self.requests: list[AssignReplicasToDirsRequest] = []
        self.outcomes: list[Any] = []
        self.refused: dict[int, ErrorCode] = {}
        self.assignments = DirectoryAssignments(env, cast("Any", self), self._ask, lambda: EPOCH)

    def add(self, number: int, home: bytes, known: bytes, replicas: tuple[int, ...] = (NODE,)) -> Any:
        name = TopicPartition("orders", number)
        partition = SimpleNamespace(topic_id=TOPIC_ID, name=name)
        self.homes[number] = SimpleNamespace(directory_id=home, partitions={name})
        self.known[number], self.replicas[number], self.partitions[number] = known, replicas, partition
        return partition

    def __iter__(self) -> Any:
        return iter(self.partitions.values())

    def get(self, topic: str, number: int) -> Any:
        assert topic == "orders"
        return self.partitions.get(number)

    def home(self, partition: Any) -> Any:
        return self.homes[partition.name.partition]

    def state_of(self, _: str, topic_id: bytes, number: int, *, by_id: bool) -> Any:
        assert (topic_id, by_id) == (TOPIC_ID, True)
        if number not in self.known:
            return None
        directory = lambda node: (self.known[number], node)[0]  # noqa: E731
        return SimpleNamespace(replicas=self.replicas[number], directory=directory, partition_epoch=self.epoch)

    def on_change(self, listener: Callable[[Any], None]) -> None:
        self.listeners["change"] = listener

    def on_unopened(self, listener: Callable[[bytes, int], None]) -> None:
        self.unopened = listener

    def report_unopened(self) -> None:
        """All of them are open."""

    def on_removed(self, listener: Callable[[Any], None]) -> None:
        self.listeners["removed"] = listener

    def on_directory_failed(self, listener: Callable[[Any], None]) -> None:
        self.listeners["failed"] = listener

    async def _ask(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        assert (request.broker_id, request.broker_epoch) == (NODE, EPOCH)
        self.requests.append(request)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
        elif isinstance(outcome, Exception):
            raise outcome
        elif outcome is not None:
            return AssignReplicasToDirsResponse(error_code=outcome)
        return AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponseDirectoryData(
                    directory.id,
                    [
                        AssignReplicasToDirsResponseTopicData(
                            topic.topic_id,
                            [
                                AssignReplicasToDirsResponsePartitionData(
                                    row.partition_index, self.refused.get(row.partition_index, ErrorCode.NONE)
                                )
                                for row in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in request.directories
            ]
        )

    def reported(self) -> list[dict[bytes, list[tuple[int, bool]]]]:
        """Partitions by directory, and whether they kept their records, of each request."""
        return [
            {
                directory.id: [
                    (row.partition_index, row.kept_records) for topic in directory.topics for row in topic.partitions
                ]
                for directory in request.directories
            }
            for request in self.requests
        ]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "BACKOFF_FIRST_MS", 1)


async def settle() -> None:
    """Let everything that needs no time happen."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        env = SystemEnv()
        try:
            await work(World(env))
        finally:
            await env.close()

    asyncio.run(inside())


def test_replicas_that_the_controller_has_elsewhere_are_reported_once() -> None:
    async def work(world: World) -> None:
        world.add(0, FIRST, SECOND)
        world.add(1, FIRST, FIRST)
        world.add(2, SECOND, FIRST)
        world.add(3, FIRST, SECOND, replicas=(1, 2))
        world.assignments.start()
        await settle()
        assert world.reported() == [{FIRST: [(0, False)], SECOND: [(2, False)]}]
        # Later changes of a partition say nothing new, but a new one does.
        for number in range(4):
            world.listeners["change"](world.partitions[number])
        world.listeners["change"](world.add(4, FIRST, SECOND))
        await settle()
        assert world.reported()[1:] == [{FIRST: [(4, False)]}]
        world.listeners["removed"](world.partitions[4])
        world.listeners["change"](world.partitions[4])
        await settle()
        assert world.reported()[2:] == [{FIRST: [(4, False)]}]

    run(work)


def test_a_move_is_known_when_the_controller_has_answered() -> None:
    async def work(world: World) -> None:
        here, there = world.add(0, FIRST, FIRST), cast("Any", SimpleNamespace(directory_id=SECOND))
        world.assignments.start()
        world.refused = {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        noted = world.assignments.assign(here, there, kept_records=True)
        refused = world.assignments.assign(world.add(1, FIRST, FIRST), there)
        assert (await noted, await refused) == (True, False)
        assert world.reported() == [{SECOND: [(0, True), (1, False)]}]

    run(work)


def test_reports_are_repeated_until_they_are_answered() -> None:
    async def work(world: World) -> None:
        partition, there = world.add(0, FIRST, FIRST), cast("Any", SimpleNamespace(directory_id=SECOND))
        world.outcomes = [
            ApiError(ErrorCode.REQUEST_TIMED_OUT, "away"),
            ErrorCode.STALE_BROKER_EPOCH,
            ErrorCode.NOT_CONTROLLER,
        ]
        world.assignments.start()
        async with asyncio.timeout(20):
            assert await world.assignments.assign(partition, there)
        assert world.reported() == [{SECOND: [(0, False)]}] * 4

    run(work)


def test_reports_continue_after_an_error_that_nobody_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_running, "PAUSE_FIRST_MS", 0)

    async def work(world: World) -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        partition, there = world.add(0, FIRST, FIRST), cast("Any", SimpleNamespace(directory_id=SECOND))
        world.outcomes = [error := KeyError("a bug")]
        world.assignments.start()
        async with asyncio.timeout(20):
            assert await world.assignments.assign(partition, there)
        assert world.reported() == [{SECOND: [(0, False)]}] * 2
        assert failures == [error]

    run(work)


def test_a_report_about_an_earlier_state_of_the_partition_is_sent_again() -> None:
    async def work(world: World) -> None:
        partition, there = world.add(0, FIRST, LOST_DIRECTORY), cast("Any", SimpleNamespace(directory_id=FIRST))
        world.refused = {0: ErrorCode.INVALID_UPDATE_VERSION}
        reported = world.assignments.assign(partition, there)
        world.assignments.start()
        await settle()
        assert world.assignments.is_pending(TOPIC_ID, 0)
        world.refused, world.epoch = {}, 6
        async with asyncio.timeout(20):
            assert await reported
        epochs = [request.directories[0].topics[0].partitions[0].partition_epoch for request in world.requests]
        assert (epochs[0], epochs[-1]) == (5, 6)

    run(work)


def test_a_replica_that_moves_on_meanwhile_is_reported_again() -> None:
    async def work(world: World) -> None:
        partition = world.add(0, FIRST, FIRST)
        gate = asyncio.Event()
        world.outcomes = [gate]
        world.assignments.start()
        first = world.assignments.assign(partition, cast("Any", SimpleNamespace(directory_id=SECOND)))
        await settle()
        second = world.assignments.assign(partition, cast("Any", SimpleNamespace(directory_id=FIRST)))
        assert await first is False
        gate.set()
        assert await second is True
        assert world.reported() == [{SECOND: [(0, False)]}, {FIRST: [(0, False)]}]

    run(work)


def test_the_replicas_of_a_directory_that_fails_are_reported_in_it() -> None:
    async def work(world: World) -> None:
        moving, known, unknown = world.add(0, FIRST, FIRST), world.add(1, FIRST, FIRST), world.add(2, FIRST, SECOND)
        world.assignments.start()
        await settle()
        assert world.reported() == [{FIRST: [(2, False)]}]
        failed = SimpleNamespace(directory_id=FIRST, partitions={one.name for one in (moving, known, unknown)})
        failed.partitions.add(TopicPartition("orders", 9))
        gate = asyncio.Event()
        world.outcomes = [gate]
        move = world.assignments.assign(moving, cast("Any", SimpleNamespace(directory_id=SECOND)))
        await settle()
        world.listeners["failed"](failed)
        # The move is over: the controller must not believe that the replica is in the other directory.
        assert await move is False
        gate.set()
        await settle()
        assert world.reported()[2:] == [{FIRST: [(0, False)]}], "the other one is recorded already"

    run(work)


def test_what_the_controller_has_recorded_counts_before_the_metadata_has_it() -> None:
    async def work(world: World) -> None:
        world.assignments.start()
        opened = world.add(0, FIRST, FIRST)
        world.unopened(TOPIC_ID, 0)
        assert not world.assignments.is_announced(TOPIC_ID, 0, LOST_DIRECTORY), "it was only sent"
        await settle()
        assert world.assignments.is_announced(TOPIC_ID, 0, LOST_DIRECTORY)
        # It could be opened after all, and the metadata here still has it in its directory.
        world.listeners["change"](opened)
        await settle()
        assert world.reported() == [{LOST_DIRECTORY: [(0, False)]}, {FIRST: [(0, False)]}]
        assert world.assignments.is_announced(TOPIC_ID, 0, FIRST)

    run(work)


def test_reports_of_a_removed_replica_do_not_hold_for_the_next_one() -> None:
    async def work(world: World) -> None:
        partition, there = world.add(0, FIRST, FIRST), cast("Any", SimpleNamespace(directory_id=SECOND))
        world.outcomes = [ApiError(ErrorCode.REQUEST_TIMED_OUT, "away"), ErrorCode.NOT_CONTROLLER]
        world.assignments.start()
        assigned = world.assignments.assign(partition, there, kept_records=True)
        await settle()
        world.listeners["removed"](partition)
        assert await assigned is False
        world.listeners["change"](partition)
        await asyncio.sleep(0.05)
        assert world.reported() == [{SECOND: [(0, True)]}]
        assert world.assignments.is_announced(TOPIC_ID, 0, FIRST)

    run(work)
