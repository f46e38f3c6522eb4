"""How dead letters reach their topic: in order, with their identities, again and again, and what ends that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from penstock.core.share.contract import ShareSettings, Write
from penstock.core.share.dead_letters import TOO_LARGE, Origin, identified, read_account
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import Reason, RecordState, StateBatch
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.share import letters as carrying
from penstock.runtime.share.counters import ShareCounters
from penstock.runtime.share.dead_letter_topics import DeadLetterDestination
from penstock.runtime.share.letters import DeadLetterWriter
from penstock.runtime.share.settings import ShareGroupSettings, parse_offset_reset
from penstock.wire.records import Record, read_header, read_records

ORIGIN = Origin("jobs", 3, "group")
SETTINGS = ShareGroupSettings(
    ShareSettings(has_dead_letters=True), parse_offset_reset("latest"), False, "dlq.jobs", True
)


class Topics:
    """A partition for dead letters that knows its producers, and refuses what a test wants it to."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int]] = []
        self.notes: list[str] = []
        self.refuse: Callable[[int], ErrorCode] = lambda _: ErrorCode.NONE
        self.unavailable = 0
        self.next: dict[int, int] = {}

    async def place_of(self, name: str, partition: int) -> DeadLetterDestination:
        assert (name, partition) == ("dlq.jobs", 3)
        if self.unavailable:
            self.unavailable -= 1
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no leader")
        return DeadLetterDestination(name, bytes(16), 0, 1)

    async def write(self, _: DeadLetterDestination, batches: Sequence[bytes]) -> list[ErrorCode]:
        codes = []
        for batch in batches:
            header, (record,) = read_header(batch), read_records(batch, 10_000)
            account = read_account(record.headers)
            assert account is not None
            is_copy = record.value is not None
            code = self.refuse(account.offset) if is_copy else ErrorCode.NONE
            expected = self.next.get(header.producer_id, header.base_sequence)
            if code is ErrorCode.NONE and header.base_sequence > expected:
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if code is ErrorCode.NONE and header.base_sequence == expected:
                self.next[header.producer_id] = expected + 1
                self.written.append((header.producer_id, header.base_sequence, account.offset))
                self.notes.append(account.message)
            codes.append(code)
        return codes


class World:
    """A share-partition with letters of producer 7, and a carrier of them."""

    def __init__(self, env: SystemEnv, count: int, first_sequence: int = 0) -> None:
        stored = StateBatch(10, 9 + count, RecordState.ARCHIVING, 1, 7, first_sequence, Reason.REJECTED, "m")
        self.share = SharePartition(10, [stored], SETTINGS.partition)
        self.topics = Topics()
        self.settings = SETTINGS
        self.fails = 0
        self.idle = asyncio.Event()
        self._producer_id = 100
        self.carrier = DeadLetterWriter(
            env,
            self.share,
            ORIGIN,
            self.topics,  # type: ignore[arg-type]
            ShareCounters(),
            lambda: self.settings,
            self._read,
            self._store,
            self.idle.set,
        )

    async def _read(self, offset: int) -> Record:
        return Record(offset, 5, b"key", b"value")

    async def _store(self, write: Write | None) -> None:
        await asyncio.sleep(0)
        assert write is not None
        self._producer_id += 1
        batches, _ = identified(write.batches, self._producer_id, 0)
        self.fails -= 1
        self.share.settle(write.number, is_durable=self.fails < 0, batches=batches)
        if self.fails >= 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the state has no coordinator")

    async def carry(self) -> list[int]:
        self.carrier.nudge()
        async with asyncio.timeout(20):
            await self.idle.wait()
        assert self.share.start == self.share.end
        return [offset for _, _, offset in self.topics.written]


def run(body: Callable[[SystemEnv], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        env = SystemEnv()
        try:
            await body(env)
        finally:
            await env.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "RETRY_MIN_MS", 1)


def test_letters_are_written_in_order_and_archived() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 50, first_sequence=4)
        assert await world.carry() == [*range(10, 60)]
        assert [sequence for _, sequence, _ in world.topics.written] == [*range(4, 54)]

    run(body)


def test_more_and_more_letters_are_written_at_once_while_that_works() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 50)
        sizes: list[int] = []
        write = world.topics.write

        async def noting(place: DeadLetterDestination, batches: Sequence[bytes]) -> list[ErrorCode]:
            sizes.append(len(batches))
            return await write(place, batches)

        world.topics.write = noting  # type: ignore[method-assign]
        assert await world.carry() == [*range(10, 60)]
        # One at first: nothing is known of the partition.
        assert sizes == [1, 2, 4, 8, 16, 16, 3]

    run(body)


def test_a_letter_that_is_there_is_not_written_again() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 5)
        world.topics.next[7] = 3
        assert await world.carry() == [13, 14]

    run(body)


def test_what_could_not_be_archived_is_not_written_again() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 20)
        world.fails = 3
        assert await world.carry() == [*range(10, 30)]

    run(body)


def test_letters_wait_for_their_topic() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 20)
        world.topics.unavailable = 3
        refused = {15: 2, 16: 1}

        def refuse(offset: int) -> ErrorCode:
            refused[offset] = refused.get(offset, 0) - 1
            return ErrorCode.NOT_ENOUGH_REPLICAS if refused[offset] >= 0 else ErrorCode.NONE

        world.topics.refuse = refuse
        assert await world.carry() == [*range(10, 30)]

    run(body)


def test_letters_that_the_partition_will_never_take_get_other_identities() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 3, first_sequence=9)
        world.topics.next[7] = 2
        assert await world.carry() == [10, 11, 12]
        assert {producer_id for producer_id, _, _ in world.topics.written} == {101}

    run(body)


def test_a_record_that_is_too_large_is_named_without_its_contents() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 9)
        world.topics.refuse = lambda offset: ErrorCode.MESSAGE_TOO_LARGE if offset == 15 else ErrorCode.NONE
        assert await world.carry() == [*range(10, 19)]
        assert [TOO_LARGE in note for note in world.topics.notes] == [offset == 15 for offset in range(10, 19)]

    run(body)


def test_a_group_that_wants_no_letters_any_more_has_them_archived() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 5)
        world.settings = SETTINGS._replace(dead_letter_topic="")
        assert await world.carry() == []

    run(body)


def test_a_share_partition_is_busy_until_its_letters_are_written() -> None:
    async def body(env: SystemEnv) -> None:
        world = World(env, 3)
        busy: list[bool] = []
        write = world.topics.write

        async def looking(place: DeadLetterDestination, batches: Sequence[bytes]) -> list[ErrorCode]:
            busy.append(world.carrier.is_busy)
            return await write(place, batches)

        world.topics.write = looking  # type: ignore[method-assign]
        assert not world.carrier.is_busy
        await world.carry()
        assert all(busy)
        assert busy
        assert not world.carrier.is_busy

    run(body)
