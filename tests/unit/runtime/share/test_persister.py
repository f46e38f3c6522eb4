"""The Persister finds the coordinator, asks again where that helps, and gives up where it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core.metadata.image import PartitionState
from penstock.core.share.runs import NO_DELAYS, StateBatch
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER
from penstock.runtime.brokers import Brokers
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import PeerLost
from penstock.runtime.share.persister import Persister, StoredState, Summary
from penstock.wire.messages import read_share_group_state as reading
from penstock.wire.messages import read_share_group_state_summary as summing
from penstock.wire.messages import write_share_group_state as writing
from support.virtual_time import VirtualEnv, run_virtually

TOPIC = bytes(range(16))
HERE, THERE = 1, 2


class World:
    """Brokers that answer from a script: an error, or a response. The last of `leaders` stays it."""

    def __init__(
        self,
        *script: Any,
        leaders: tuple[int, ...] = (HERE,),
        timeout_ms: int = 5_000,
        env: SystemEnv | None = None,
    ) -> None:
        self.script = [*script]
        self.asked: list[tuple[int, Any]] = []
        self._leaders = [*leaders]
        brokers = Brokers(HERE, lambda broker: Broker(self, broker), self._here)
        self.persister = Persister(env or SystemEnv(), brokers, self._leader_of, timeout_ms)

    async def _leader_of(self, key: str) -> PartitionState:
        assert key == "g:AAECAwQFBgcICQoLDA0ODw:3"
        leader = self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]
        return PartitionState((HERE, THERE), (HERE, THERE), leader, 0, 0)

    async def _here(self, request: Any) -> Any:
        return self.answer(HERE, request)

    def answer(self, broker: int, request: Any) -> Any:
        self.asked.append((broker, request))
        said = self.script.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


class Broker:
    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    def send(self, message: Any, *, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        assert timeout_ms == 5_000
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(self._world.answer(self._number, message))
        except PeerLost as error:
            answer.set_exception(error)
        return answer


def written(error: ErrorCode = ErrorCode.NONE) -> writing.WriteShareGroupStateResponse:
    row = writing.PartitionResult(3, error, None if error is ErrorCode.NONE else "because")
    return writing.WriteShareGroupStateResponse([writing.WriteStateResult(TOPIC, [row])])


async def write(world: World) -> None:
    await world.persister.write("g", TOPIC, 3, 1, 2, 10, 4, [StateBatch(12, 13, 2, 1)], NO_DELAYS, 7)


def test_it_follows_the_coordinator() -> None:
    world = World(
        written(ErrorCode.NOT_COORDINATOR),
        PeerLost("gone"),
        written(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        written(),
        leaders=(HERE, THERE, THERE, NO_LEADER, HERE),
    )
    asyncio.run(write(world))
    assert [broker for broker, _ in world.asked] == [HERE, THERE, THERE, HERE]
    row = world.asked[0][1].topics[0].partitions[0]
    assert (row.partition, row.state_epoch, row.leader_epoch, row.start_offset, row.write_number) == (3, 1, 2, 10, 7)
    assert (row.delivery_complete_count, [tuple(one)[:4] for one in row.state_batches]) == (4, [(12, 13, 2, 1)])


@pytest.mark.parametrize("error", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_fenced_leader_gets_the_error_at_once(error: ErrorCode) -> None:
    world = World(written(error))
    with pytest.raises(ApiError, match="because") as refused:
        asyncio.run(write(world))
    assert refused.value.code is error


def test_it_gives_up_in_time() -> None:
    world = World(*[written(ErrorCode.NOT_COORDINATOR)] * 9, timeout_ms=100)
    with pytest.raises(ApiError) as refused:
        asyncio.run(write(world))
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert 1 < len(world.asked) < 9


def test_retries_back_off() -> None:
    async def story(env: VirtualEnv) -> None:
        world = World(*[written(ErrorCode.NOT_COORDINATOR)] * 9, written(), env=env)
        await write(world)
        assert len(world.asked) == 10
        assert env.passed_ms() == 20 + 40 + 80 + 160 + 320 + 640 + 3 * 1_000

    run_virtually(story)


def test_what_is_stored_comes_back() -> None:
    row = reading.PartitionResult(3, 0, None, 7, 20, [reading.StateBatch(21, 22, 0, 2)])
    sums = summing.PartitionResult(3, 0, None, 7, 5, 20, 2)
    world = World(
        reading.ReadShareGroupStateResponse([reading.ReadStateResult(TOPIC, [row])]),
        summing.ReadShareGroupStateSummaryResponse([summing.ReadStateSummaryResult(TOPIC, [sums])]),
    )

    async def run() -> tuple[StoredState, Summary]:
        persister = world.persister
        return await persister.read("g", TOPIC, 3, 9), await persister.read_summary("g", TOPIC, 3)

    stored, summary = asyncio.run(run())
    assert stored == StoredState(7, 20, (StateBatch(21, 22, 0, 2),))
    assert summary == Summary(7, 5, 20, 2)
    assert world.asked[0][1].topics[0].partitions[0].leader_epoch == 9
