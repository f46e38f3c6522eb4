"""Only what a coroutine does counts, not what it waits for."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock.api.work_timer import WorkTimer


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_steps_count_and_waits_do_not() -> None:
    clock = Clock()
    timer = WorkTimer(clock)

    async def work(news: asyncio.Future[str]) -> str:
        clock.now += 1
        said = await news
        clock.now += 2
        assert timer.spent_s == 3
        await asyncio.sleep(0)
        clock.now += 4
        return said

    async def scenario() -> None:
        news: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(timer.measured(work(news)))
        await asyncio.sleep(0)
        clock.now += 100
        news.set_result("news")
        assert await task == "news"
        assert timer.spent_s == 7

    asyncio.run(scenario())


def test_who_is_cancelled_cleans_up_and_is_measured() -> None:
    clock = Clock()
    timer = WorkTimer(clock)

    async def work() -> None:
        try:
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        finally:
            clock.now += 5

    async def scenario() -> None:
        task = asyncio.get_running_loop().create_task(timer.measured(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert timer.spent_s == 5

    asyncio.run(scenario())


def test_who_is_cancelled_before_the_first_step_leaves_nothing_behind() -> None:
    async def work() -> None:
        raise AssertionError("never begun")

    async def scenario() -> None:
        task = asyncio.get_running_loop().create_task(WorkTimer(Clock()).measured(work()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    # A coroutine that was never run warns when it is collected, and warnings are errors.
    gc.collect()


def test_failures_come_through() -> None:
    timer = WorkTimer(Clock())

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def scenario() -> None:
        with pytest.raises(ValueError, match="no"):
            await asyncio.get_running_loop().create_task(timer.measured(work()))

    asyncio.run(scenario())
