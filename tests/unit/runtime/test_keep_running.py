"""Background loops start again when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.runtime import keep_running as module
from penstock.runtime.env import SystemEnv
from penstock.runtime.keep_running import keep_running


def play(story: Callable[[SystemEnv, list[str]], Awaitable[None]]) -> None:
    async def run() -> None:
        env = SystemEnv()
        reports: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        try:
            await asyncio.wait_for(story(env, reports), 20)
        finally:
            await env.close()

    asyncio.run(run())


def test_a_loop_that_fails_starts_again_and_every_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_FIRST_MS", 0)

    async def story(env: SystemEnv, reports: list[str]) -> None:
        left = [KeyError("one"), ZeroDivisionError("two")]

        async def work() -> None:
            if left:
                raise left.pop()

        await keep_running(env, work, "sweeping")
        assert reports == [
            "background task sweeping failed (1 in a row) and is started again",
            "background task sweeping failed (2 in a row) and is started again",
        ]

    play(story)


def test_a_cancelled_loop_ends() -> None:
    async def story(env: SystemEnv, reports: list[str]) -> None:
        started = asyncio.Event()

        async def work() -> None:
            started.set()
            await asyncio.Event().wait()

        task = keep_running(env, work, "waiting")
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not reports

    play(story)
