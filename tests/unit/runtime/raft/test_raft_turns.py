"""Work that is done one piece after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from penstock.runtime.raft.turns import Turns, when_done


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_work_is_done_at_once_or_in_order_and_those_that_wait_for_it_continue_before_the_next() -> None:
    async def test() -> None:
        turns, done = Turns(), list[str]()
        slow: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.run(partial(done.append, "quick"))
        assert done == ["quick"]
        turns.run(lambda: slow)
        ends: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for number, end in enumerate(ends):
            end.add_done_callback(lambda _, number=number: done.append(f"after {number}"))  # type: ignore[misc]
            turns.run(partial(end.set_result, None))
        await asyncio.sleep(0)
        assert (turns.waiting, done) == (3, ["quick"])
        slow.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
            turns.run(partial(done.append, "late"))
        async with turns.hold():
            pass
        assert done == ["quick", "after 0", "after 1", "after 2", "late", "late", "late"]

    run(test())


def test_a_failure_does_not_hold_up_the_next() -> None:
    async def test() -> None:
        turns, done = Turns(), list[str]()

        def fail() -> None:
            turns.run(partial(done.append, "next"))
            raise ValueError("a bug")

        with pytest.raises(ValueError, match="a bug"):
            turns.run(fail)
        assert done == []
        await asyncio.sleep(0)
        assert done == ["next"]
        slow: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        turns.run(lambda: slow)
        turns.run(partial(done.append, "last"))
        slow.set_exception(ValueError())
        await asyncio.sleep(0)
        assert slow.exception() is not None
        assert done == ["next", "last"]

    run(test())


def test_a_turn_can_be_held_and_given_up_before_it_came() -> None:
    async def test() -> None:
        turns, done = Turns(), list[str]()

        async def hold(name: str) -> None:
            async with turns.hold():
                await asyncio.sleep(0.001)
                done.append(name)

        tasks = [asyncio.ensure_future(hold(name)) for name in ("first", "second", "third")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        turns.run(partial(done.append, "last"))
        await asyncio.wait(tasks)
        async with turns.hold():
            assert done == ["first", "third", "last"]
        async with turns.hold():
            done.append("again")
        assert done[-1] == "again"

    run(test())


def test_a_known_result_is_used_at_once() -> None:
    async def test() -> None:
        found: list[int] = []
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        when_done(future, found.append)
        future.set_result(1)
        assert found == []
        when_done(future, found.append)
        await asyncio.sleep(0)
        assert found == [1, 1]

    run(test())
