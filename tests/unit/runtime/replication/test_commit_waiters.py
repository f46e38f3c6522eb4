"""Futures that wait for the high watermark: in the order of their offsets, and completed as another one is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.commit_waiters import CommitWaiters, fail_quietly, follow

REFUSED = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_futures_are_taken_up_to_the_high_watermark_in_their_order() -> None:
    async def story() -> None:
        waiters = CommitWaiters()
        futures = {
            name: waiters.wait(offset, name == "b") for name, offset in zip("abcde", (5, 9, 7, 5, 9), strict=True)
        }
        assert [offset for offset, *_ in waiters.waiting] == [5, 5, 7, 9, 9]
        assert waiters.take(4) == []
        assert waiters.take(7) == [(5, False, futures["a"]), (5, False, futures["d"]), (7, False, futures["c"])]
        assert waiters.take(8) == []
        assert waiters.take(100) == [(9, True, futures["b"]), (9, False, futures["e"])]
        assert waiters.waiting == []

    run(story)


def test_all_fail_but_those_that_nobody_awaits() -> None:
    async def story() -> None:
        waiters = CommitWaiters()
        waiting, left = waiters.wait(5, False), waiters.wait(6, True)
        left.cancel()
        waiters.fail(REFUSED)
        assert (waiting.exception(), left.cancelled(), waiters.waiting) == (REFUSED, True, [])
        fail_quietly(waiting, ApiError(ErrorCode.NONE, "another"))
        assert waiting.exception() is REFUSED

    run(story)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("outcome", ["result", "error", "cancelled"])
def test_a_future_ends_as_the_one_that_it_follows(outcome: str, is_done: bool) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        source, target, gone = loop.create_future(), loop.create_future(), loop.create_future()
        gone.cancel()

        def end() -> None:
            if outcome == "error":
                source.set_exception(REFUSED)
            elif outcome == "cancelled":
                source.cancel()
            else:
                source.set_result(None)

        if is_done:
            end()
        follow(source, target)
        follow(source, gone)
        assert target.done() is is_done
        if not is_done:
            end()
            await asyncio.sleep(0)
        assert target.done()
        assert target.cancelled() is (outcome == "cancelled")
        if outcome != "cancelled":
            assert target.exception() is (REFUSED if outcome == "error" else None)

    run(story)
