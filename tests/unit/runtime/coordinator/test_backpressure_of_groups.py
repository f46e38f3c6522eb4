"""Back-pressure: which groups are asked, how often and where, and for how long a produce is held back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.backpressure import BackPressure
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from support.virtual_time import VirtualEnv, run_virtually

NODE, OTHER = 1, 2
ORDERS_ID = b"o" * 16
INTERVAL_MS = 1_000


class World:
    """A broker that leads orders-0 and orders-1; the groups' only coordinator is `coordinator`."""

    def __init__(self, env: VirtualEnv, coordinator: int = NODE) -> None:
        self.env, self.image, self.node_id = env, Image(), NODE
        self.add_topic("orders", ORDERS_ID, NODE, count=2)
        if coordinator != 0:
            self.add_topic(OFFSETS_TOPIC, b"f" * 16, coordinator)
        self.settings = SimpleNamespace(
            penstock_backpressure_check_interval_ms=INTERVAL_MS, penstock_backpressure_throttle_max_ms=400
        )
        self.committed: dict[tuple[str, int], int] = {}
        self.error: Exception | None = None
        self.rows: list[OffsetFetchResponseTopics] = []
        # When which group was asked for.
        self.reads: list[tuple[int, str]] = []
        self.fetches: list[tuple[int, OffsetFetchRequest, int]] = []
        world: Any = self
        self.pressure = BackPressure(env, world, self.image, world, lambda: world.settings)

    def add_topic(self, name: str, topic_id: bytes, leader: int, count: int = 1) -> None:
        self.image.replay(TopicRecord(name, topic_id))
        for number in range(count):
            state = PartitionState((1,), (1,), leader, 0, 0, (bytes(16),))
            self.image.replay(partition_record(topic_id, number, state))

    async def read(self, group: str, work: Callable[[Any], Any]) -> Any:
        self.reads.append((self.env.passed_ms(), group))
        if self.error is not None:
            raise self.error
        rows = {
            name: SimpleNamespace(committed=SimpleNamespace(offset=offset)) for name, offset in self.committed.items()
        }
        return work(SimpleNamespace(committed=lambda asked: rows if asked == group else {}))

    async def ask(self, broker_id: int, request: OffsetFetchRequest, *, timeout_ms: int) -> OffsetFetchResponse:
        self.fetches.append((broker_id, request, timeout_ms))
        if self.error is not None:
            raise self.error
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics=self.rows)])

    def partition(self, number: int = 0, *groups: str, **changes: Any) -> Any:
        settings = SimpleNamespace(
            penstock_backpressure_groups=groups or ("readers",), penstock_backpressure_lag_max=10
        )
        fields: dict[str, Any] = {"is_leader": True, "high_watermark": 100, "log": SimpleNamespace(start_offset=0)}
        return SimpleNamespace(name=TopicPartition("orders", number), settings=settings, **{**fields, **changes})

    def throttle_ms(self, *numbers: int) -> int:
        return self.pressure.throttle_ms([("orders", number) for number in numbers or (0,)])


def test_a_produce_waits_for_a_group_that_lags_as_it_was_last_seen() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        world.pressure.note(world.partition())
        # Lag 11 of at most 10 allowed: a tenth of the longest time.
        world.committed = {("orders", 0): 89}
        assert world.throttle_ms() == 0
        await asyncio.sleep(1.5)
        assert world.throttle_ms() == 40
        assert world.throttle_ms(7, 0) == 40
        assert world.pressure.throttled_ms == 80
        world.committed = {("orders", 0): 90}
        await asyncio.sleep(1)
        assert world.throttle_ms() == 0
        assert world.reads == [(1_000, "readers"), (2_000, "readers")]

    run_virtually(story)


def test_the_partition_that_is_furthest_ahead_counts() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        for number in (0, 1):
            world.pressure.note(world.partition(number))
        world.committed = {("orders", 0): 85, ("orders", 1): 88}
        await asyncio.sleep(1.5)
        assert (world.throttle_ms(0), world.throttle_ms(1), world.throttle_ms(1, 0)) == (200, 80, 200)

    run_virtually(story)


def test_records_that_were_deleted_are_no_lag() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        world.pressure.note(world.partition(log=SimpleNamespace(start_offset=89)))
        world.committed = {("orders", 0): 5}
        await asyncio.sleep(1.5)
        assert world.throttle_ms() == 40

    run_virtually(story)


def test_progress_that_is_not_heard_of_any_more_holds_nothing_back() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        world.pressure.note(world.partition())
        world.committed = {("orders", 0): 0}
        await asyncio.sleep(1.5)
        world.error = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
        # Heard at 1 s, it is known for five intervals.
        await asyncio.sleep(4.5)
        assert world.throttle_ms() == 400
        world.error = PeerLost("gone")
        await asyncio.sleep(0.01)
        assert world.throttle_ms() == 0

    run_virtually(story)


def test_only_groups_of_partitions_that_are_led_here_are_asked() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        world.pressure.note(world.partition(0, "a", "b"))
        world.pressure.note(world.partition(1, "b", "c", is_leader=False))
        await asyncio.sleep(1.5)
        assert [group for _, group in world.reads] == ["a", "b"]

    run_virtually(story)


def test_no_query_is_sent_while_nothing_is_watched() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        partition = world.partition()
        world.pressure.note(partition)
        world.pressure.note(partition)
        await asyncio.sleep(1.5)
        world.pressure.forget(partition)
        assert world.throttle_ms() == 0
        await asyncio.sleep(5)
        assert len(world.reads) == 1
        world.pressure.note(partition)
        await asyncio.sleep(1.5)
        assert len(world.reads) == 2
        partition.settings.penstock_backpressure_groups = ()
        world.pressure.note(partition)
        assert world.pressure.watched == {}
        await asyncio.sleep(5)
        assert len(world.reads) == 2

    run_virtually(story)


def test_a_group_that_cannot_be_read_does_not_hold_up_the_others() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env)
        world.committed = {("orders", 0): 50}
        read = world.read

        async def read_unless_stuck(group: str, work: Callable[[Any], Any]) -> Any:
            if group == "stuck":
                await asyncio.Event().wait()
            return await read(group, work)

        world.read = read_unless_stuck  # type: ignore[method-assign]
        world.pressure.note(world.partition(0, "stuck", "readers"))
        await asyncio.sleep(30)
        assert len(world.reads) > 2

    run_virtually(story)


@pytest.mark.parametrize("coordinator", [0, -1])
def test_a_group_without_a_coordinator_is_not_asked(coordinator: int) -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env, coordinator)
        world.pressure.note(world.partition())
        await asyncio.sleep(3)
        assert (world.reads, world.fetches) == ([], [])

    run_virtually(story)


def test_a_remote_coordinator_is_queried_for_watched_groups() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(env, OTHER)
        for number in (0, 1):
            world.pressure.note(world.partition(number, log=SimpleNamespace(start_offset=-9)))
        partitions = [
            OffsetFetchResponsePartitions(0, 89),
            OffsetFetchResponsePartitions(1, 0, error_code=3),
            OffsetFetchResponsePartitions(7, -1),
        ]
        world.rows = [OffsetFetchResponseTopics("", ORDERS_ID, partitions)]
        await asyncio.sleep(1.5)
        ((broker_id, request, timeout_ms),) = world.fetches
        assert (broker_id, timeout_ms) == (OTHER, 5 * INTERVAL_MS)
        (group,) = request.groups
        assert (group.group_id, group.member_id, group.member_epoch) == ("readers", None, -1)
        assert [(one.name, one.topic_id, one.partition_indexes) for one in group.topics] == [
            ("orders", ORDERS_ID, [0, 1])
        ]
        assert (world.throttle_ms(0), world.throttle_ms(1)) == (40, 0)
        # An offset of 0 was committed, one of -1 was not.
        world.rows = [
            OffsetFetchResponseTopics("orders", bytes(16), [OffsetFetchResponsePartitions(0, 0)]),
            OffsetFetchResponseTopics("", b"x" * 16, [OffsetFetchResponsePartitions(0, 99)]),
            OffsetFetchResponseTopics("orders", ORDERS_ID, [OffsetFetchResponsePartitions(1, -1)]),
        ]
        await asyncio.sleep(1)
        assert (world.throttle_ms(0), world.throttle_ms(1)) == (400, 0)

    run_virtually(story)
