"""Work that is done strictly one piece after the other, some of which waits for the disk.

What is requested while a piece is under way waits in a queue. A turn of the event loop lies between two pieces from the
queue, in which those that waited for the first one continue: nothing has changed then but by it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

T = TypeVar("T")

# A piece of work returns what must be done before the next one is started, or None where it is finished itself.
Work = Callable[[], "asyncio.Future[None] | None"]


class Turns:
    """The turns of one metadata log."""

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._is_busy = False

    @property
    def waiting(self) -> int:
        """How many pieces of work wait."""
        return len(self._queue)

    def run(self, work: Work) -> None:
        """Start `work` before this returns, or after everything that was requested before it."""
        if self._is_busy:
            self._queue.append(work)
        else:
            self._is_busy = True
            self._start(work)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """The body is one piece of work."""
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[None] = loop.create_future()
        self.run(partial(_hand_over, begun, ended))
        try:
            await begun
            yield
        finally:
            ended.set_result(None)

    def _start(self, work: Work, *, was_queued: bool = False) -> None:
        rest = None
        try:
            rest = work()
        finally:
            if rest is not None:
                rest.add_done_callback(self._next)
            elif was_queued or self._queue:
                asyncio.get_running_loop().call_soon(self._next)
            else:
                self._is_busy = False

    def _next(self, _: object = None) -> None:
        if self._queue:
            self._start(self._queue.popleft(), was_queued=True)
        else:
            self._is_busy = False


def _hand_over(begun: asyncio.Future[None], ended: asyncio.Future[None]) -> asyncio.Future[None] | None:
    if begun.cancelled():
        return None
    begun.set_result(None)
    return ended


def when_done(future: asyncio.Future[T], work: Callable[[T], None]) -> None:
    """Call `work` with the result, before this returns where it is known."""
    if future.done():
        work(future.result())
    else:
        future.add_done_callback(lambda done: work(done.result()))
