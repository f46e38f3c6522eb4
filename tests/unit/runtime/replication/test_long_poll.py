"""When a fetch that waits for more bytes is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.runtime.replication.long_poll import LongPoll
from penstock.runtime.replication.partition import Partition


class Source:
    """A partition that tells of appends."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[int], None]] = []

    def listen(self, listener: Callable[[int], None]) -> None:
        self.listeners.append(listener)

    def unlisten(self, listener: Callable[[int], None]) -> None:
        self.listeners.remove(listener)

    def grow(self, size_bytes: int) -> None:
        for listener in list(self.listeners):
            listener(size_bytes)


def poll(source: Source, bytes_wanted: int, respond: Callable[[], Any], wait_ms: int = 60_000) -> LongPoll[Any]:
    return LongPoll([cast("Partition", source)], bytes_wanted, wait_ms, respond)


def test_it_is_answered_with_the_last_byte_that_it_wants() -> None:
    async def test() -> None:
        source, answers = Source(), []
        waiting = poll(source, 10, lambda: answers.append(1) or "read")
        source.grow(9)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.reply.done()
        source.grow(1)
        # What is appended in the same turn is part of the answer.
        assert not waiting.reply.done()
        source.grow(5)
        assert await waiting.reply == "read"
        await asyncio.sleep(0)
        assert (answers, source.listeners) == ([1], [])

    asyncio.run(test())


def test_it_is_answered_when_the_time_is_over_or_it_is_woken() -> None:
    async def test() -> None:
        source = Source()
        assert await poll(source, 10, lambda: "late", wait_ms=1).reply == "late"
        waiting = poll(source, 10, lambda: "woken")
        waiting.wake()
        assert await waiting.reply == "woken"
        await asyncio.sleep(0)
        assert source.listeners == []

    asyncio.run(test())


def test_a_failed_read_fails_the_request_and_a_cancelled_one_listens_no_more() -> None:
    async def test() -> None:
        def fail() -> None:
            raise OSError("the disk")

        source = Source()
        waiting = poll(source, 1, fail)
        source.grow(1)
        with pytest.raises(OSError, match="the disk"):
            await waiting.reply
        given_up = poll(source, 1, fail)
        source.grow(1)
        given_up.reply.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert source.listeners == []

    asyncio.run(test())
