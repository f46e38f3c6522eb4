"""Share-partitions of a leader: when they are loaded and dropped, and who is woken when records may be had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.config.broker import node_settings
from penstock.config.offset_reset import EARLIEST, OffsetReset
from penstock.core.metadata.image import Image
from penstock.core.share.acknowledgements import Acknowledgement, AckType
from penstock.core.share.runs import NO_DELAYS, Delays
from penstock.core.share.sessions import INITIAL_EPOCH, TopicIdPartition
from penstock.core.share.state import NO_OFFSET
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.share.led_partition import RETRY_MS, LedSharePartition, as_client_error
from penstock.runtime.share.partitions import SharePartitions
from penstock.runtime.share.persister import StoredState
from penstock.runtime.share.reading import ShareReader
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from penstock.wire.records import Record, build_batch, read_header
from support.node_thread import ONE_NODE

PLACE = TopicIdPartition(b"t" * 16, 0)
GROUP = "workers"
LOCK_MS = 15_000


class Clock(SystemEnv):
    def __init__(self) -> None:
        super().__init__()
        self.at_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.at_ms


class World:
    """One partition with ten records, and a share coordinator that answers when the test lets it."""

    leadership = None

    def __init__(self, path: Path) -> None:
        self.env = Clock()
        self.listeners: dict[str, Callable[[Any], None]] = {}
        self.log = Log.open(OsFilesystem(), path / "orders-0", LogSettings(), recovery_point=0, now_ms=0, clean=True)
        for offset in range(10):
            data = build_batch([Record(offset, 1_000, None, b"v")], base_offset=offset, leader_epoch=0)
            self.log.append([read_header(data)], data, 0)
        self.partition: Any = SimpleNamespace(
            name=TopicPartition("orders", 0),
            topic_id=PLACE.topic_id,
            leader_epoch=5,
            is_leader=True,
            leading=object(),
            log=self.log,
            high_watermark=10,
            counters=SimpleNamespace(read=lambda _: None),
            read=self._read,
        )
        self.stored = StoredState(1, 0)
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.reads: list[int] = []
        self.writes: list[tuple[Any, ...]] = []
        self.failures: list[ApiError] = []
        node, _ = node_settings(
            {
                **ONE_NODE,
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "log.dirs": "/var/lib/penstock",
                "group.share.record.lock.duration.ms": str(LOCK_MS),
            }
        )
        world = cast("Any", self)
        dead_letters = cast("Any", SimpleNamespace(take_producer_id=None))
        self.shares = SharePartitions(self.env, Image(), world, world, dead_letters, lambda: node)

    def _read(self, offset: int, size_max: int, *, committed_only: bool, minimum_one_batch: bool) -> Any:
        assert not committed_only
        return self.log.read(offset, size_max, minimum_one_batch=minimum_one_batch)

    def lookup(self, *_: object, by_id: bool) -> Any:
        assert by_id
        return self.partition

    def on_resigned(self, listener: Callable[[Any], None]) -> None:
        self.listeners["resigned"] = listener

    def on_removed(self, listener: Callable[[Any], None]) -> None:
        self.listeners["removed"] = listener

    def on_leader(self, listener: Callable[[Any], None]) -> None:
        self.listeners["leader"] = listener

    async def read(self, group: str, topic_id: bytes, partition: int, leader_epoch: int) -> StoredState:
        assert (group, topic_id, partition) == (GROUP, *PLACE)
        self.reads.append(leader_epoch)
        await self.may_answer.wait()
        return self.stored

    async def write(self, *arguments: Any) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.writes.append(arguments)

    async def load(self) -> LedSharePartition:
        return await self.shares.loaded(GROUP, PLACE)

    @property
    def is_loaded(self) -> bool:
        return any(True for _ in self.shares.led())

    def take(self, led: LedSharePartition, member: str, count: int) -> list[int]:
        """Offsets that a member gets."""
        found = led.find(1_000_000, self.shares.settings_of(GROUP), minimum_one_batch=True)
        if found is None:
            return []
        delivery = led.acquire(member, found, count, batch_size=count, is_strict=True)
        return [offset for one in delivery.acquired for offset in range(one.first, one.last + 1)]


def run(path: Path, work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        world = World(path)
        try:
            await work(world)
        finally:
            world.shares.close()
            await world.env.close()
            world.log.close(clean=False)

    asyncio.run(inside())


def test_those_who_ask_at_the_same_time_share_what_is_loaded_once(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        first, second = await asyncio.gather(world.load(), world.load())
        assert first is second is world.shares.get(GROUP, PLACE)
        assert world.reads == [5]
        assert world.shares.counters.loads == 1
        assert not world.writes, "its start is stored"

    run(tmp_path, work)


def test_where_a_group_starts_is_stored_before_anything_is_handed_out(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.stored = StoredState(2, NO_OFFSET)
        led = await asyncio.ensure_future(cast("Any", world.shares.get(GROUP, PLACE, OffsetReset(EARLIEST))))
        # The group, the place, the epochs of the state and the leader, and the start.
        assert [write[:7] for write in world.writes] == [(GROUP, *PLACE, 2, 5, 0, 0)]
        assert world.take(led, "m", 3) == [0, 1, 2]

    run(tmp_path, work)


@pytest.mark.parametrize(("epoch", "is_leader"), [(6, True), (6, False), (5, False)])
def test_what_was_loaded_for_another_leadership_is_not_kept(tmp_path: Path, epoch: int, is_leader: bool) -> None:
    async def work(world: World) -> None:
        world.may_answer.clear()
        loading = asyncio.ensure_future(world.load())
        while not world.reads:  # noqa: ASYNC110
            await asyncio.sleep(0)
        world.partition.leader_epoch, world.partition.is_leader = epoch, is_leader
        world.may_answer.set()
        led = await loading
        assert led.is_closed
        assert not world.is_loaded

    run(tmp_path, work)


@pytest.mark.parametrize("event", ["resigned", "removed", "leader"])
def test_it_is_dropped_with_the_leadership_and_members_that_wait_are_woken(tmp_path: Path, event: str) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        woken: list[str] = []
        led.listen(lambda: woken.append("waiting"))
        world.listeners[event](SimpleNamespace(**vars(world.partition)))
        assert world.is_loaded, "that was another partition"
        if event == "leader":
            world.listeners[event](world.partition)
            assert world.is_loaded, "it is led in the same epoch"
        world.partition.leader_epoch += 1
        world.listeners[event](world.partition)
        assert (world.is_loaded, led.is_closed, woken) == (False, True, ["waiting"])
        again = await world.load()
        assert again is not led
        assert world.reads == [5, 6]

    run(tmp_path, work)


def test_a_later_epoch_is_loaded_anew(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        world.partition.leader_epoch = 6
        assert await world.load() is not led
        assert world.reads == [5, 6]

    run(tmp_path, work)


def test_a_broker_that_stops_drops_everything_and_loads_nothing_more(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        woken: list[str] = []
        led.listen(lambda: woken.append("waiting"))
        world.shares.close()
        assert (world.is_loaded, led.is_closed, woken) == (False, True, ["waiting"])
        with pytest.raises(ApiError) as refused:
            await world.load()
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, work)


def test_it_is_dropped_when_its_group_has_gone_and_others_get_what_a_member_held(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        sessions = world.shares.sessions
        session = sessions.fetch(GROUP, "m", INITIAL_EPOCH, [PLACE], [])
        other = sessions.fetch(GROUP, "n", INITIAL_EPOCH, [PLACE], [])
        assert world.take(led, "m", 4) == [0, 1, 2, 3]
        assert world.take(led, "n", 2) == [4, 5]
        woken: list[str] = []
        led.listen(lambda: woken.append("waiting"))
        await world.shares.end_session(session)
        assert woken
        assert world.is_loaded
        assert world.take(led, "n", 4) == [0, 1, 2, 3]
        await world.shares.end_session(other)
        assert not world.is_loaded
        written = len(world.writes)
        await world.shares.end_session(other)
        assert len(world.writes) == written, "a session ends once"

    run(tmp_path, work)


def test_records_come_back_when_a_lock_ends(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        assert world.take(led, "m", 2) == [0, 1]
        woken = asyncio.Event()
        led.listen(woken.set)
        world.env.at_ms += LOCK_MS - 1
        led._time_is_up()
        assert led.lock_timeouts == 0
        world.env.at_ms += 1
        led._time_is_up()
        async with asyncio.timeout(10):
            await woken.wait()
        assert led.lock_timeouts == 2
        assert world.take(led, "n", 2) == [0, 1]

    run(tmp_path, work)


def test_an_acknowledgement_that_cannot_be_stored_is_an_error_and_the_state_of_another_is_given_up(
    tmp_path: Path,
) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        settings = world.shares.settings_of(GROUP)
        assert world.take(led, "m", 2) == [0, 1]
        world.failures = [
            ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "later"),
            ApiError(ErrorCode.FENCED_LEADER_EPOCH, "another leads"),
        ]
        with pytest.raises(ApiError) as away:
            await led.settle("m", 0, 1, AckType.ACCEPT, settings)
        assert away.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.is_loaded
        with pytest.raises(ApiError) as fenced:
            await led.settle("m", 0, 1, AckType.ACCEPT, settings)
        assert fenced.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (world.is_loaded, led.is_closed) == (False, True)

    run(tmp_path, work)


def test_records_that_were_deleted_cannot_be_settled(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        settings = world.shares.settings_of(GROUP)
        assert world.take(led, "m", 4) == [0, 1, 2, 3]
        world.log.advance_start_offset(3)
        with pytest.raises(ApiError) as refused:
            await led.settle("m", 1, 1, AckType.ACCEPT, settings)
        assert refused.value.code == ErrorCode.INVALID_RECORD_STATE
        # As in Kafka, what a member has of them is ignored.
        await led.acknowledge("m", [Acknowledgement(0, 2, [AckType.ACCEPT])], settings)
        assert (led.share.start, world.writes) == (3, [])
        await led.settle("m", 3, 1, AckType.ACCEPT, settings)
        assert led.share.start == 4

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_members_get_errors_that_they_know(code: ErrorCode, shown: ErrorCode) -> None:
    error = as_client_error(ApiError(code, "why"))
    assert (error.code, error.message) == (shown, "why")


@pytest.mark.parametrize(
    ("lock_s", "delay_s", "first_s"), [(10, 100, 10), (100, 10, 10), (None, 10, 10), (10, None, 10)]
)
def test_the_timer_is_set_for_what_is_due_first(
    tmp_path: Path, lock_s: int | None, delay_s: int | None, first_s: int
) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        led.share = cast(
            "Any",
            SimpleNamespace(
                next_deadline_ms=None if lock_s is None else world.env.monotonic_ms() + 1000 * lock_s,
                next_due_ms=None if delay_s is None else world.env.now_ms() + 1000 * delay_s,
            ),
        )
        led._set_timer()
        assert led._timer is not None
        # A slow machine does not take a minute for this.
        assert first_s - 60 < led._timer.when() - asyncio.get_running_loop().time() <= first_s
        led.share = cast("Any", SimpleNamespace(next_deadline_ms=None, next_due_ms=None))
        led._set_timer()
        assert led._timer is None

    run(tmp_path, work)


def test_locks_that_cannot_be_ended_durably_are_tried_again_after_a_rest(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        led = await world.load()
        assert world.take(led, "m", 2) == [0, 1]
        world.failures = [ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "later")]
        world.env.at_ms += LOCK_MS
        led._time_is_up()
        assert led._timer is None
        async with asyncio.timeout(10):
            while led._timer is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert led._not_before_ms == world.env.at_ms + RETRY_MS
        assert world.writes == []

    run(tmp_path, work)


@pytest.mark.parametrize(("delays", "start"), [(NO_DELAYS, 3), (NO_DELAYS._replace(start=1), 1)])
def test_delayed_records_are_searched_for_from_where_the_first_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delays: Delays, start: int
) -> None:
    async def load(_: ShareReader, from_offset: int, *__: object) -> None:
        loads.append(from_offset)

    async def work(world: World) -> None:
        world.stored = StoredState(1, 3, delays=delays)
        await world.load()
        assert loads == [start]

    loads: list[int] = []
    monkeypatch.setattr(ShareReader, "load", load)
    run(tmp_path, work)
