"""A limited number of turns at something, which the owners that wait for it get alternately."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from penstock.core.fairness import FairQueue

O = TypeVar("O", bound=Hashable)  # noqa: E741


class FairTurns(Generic[O]):
    """A semaphore: `count` turns at a time. Where several owners wait, each gets one before any gets a second."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: FairQueue[O, asyncio.Future[None]] = FairQueue()

    @property
    def is_busy(self) -> bool:
        """Whether the next turn has to be waited for."""
        return self._free == 0

    @property
    def waiting(self) -> int:
        """How many turns are being waited for."""
        return len(self._queue)

    def waiting_of(self, owner: O) -> int:
        """How many of them an owner waits for."""
        return self._queue.length(owner)

    @asynccontextmanager
    async def turn(self, owner: O) -> AsyncIterator[None]:
        """Wait for a turn, and hold it."""
        await self.acquire(owner)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, owner: O) -> None:
        """Wait for a turn."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(owner, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._queue.remove(owner, turn) and not turn.cancelled():
                # It was handed over at the same moment.
                self.release()
            raise

    def release(self) -> None:
        """Give a turn back, or on to the next owner that waits."""
        while self._queue:
            _, turn = self._queue.take()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
