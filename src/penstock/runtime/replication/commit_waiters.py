"""Futures that wait until records are committed, ordered by offset, completed as the high watermark passes them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from operator import itemgetter
from typing import Any

from penstock.model.errors import ApiError

_offset = itemgetter(0)


class CommitWaiters:
    """The futures of one partition. `waiting` is empty when there are none."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        # Offset, whether to wait for the disk as well, and the future.
        self.waiting: list[tuple[int, bool, asyncio.Future[None]]] = []

    def wait(self, offset: int, sync: bool) -> asyncio.Future[None]:
        """A future for everything before `offset`; `sync` is returned with it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self.waiting
        if not waiting or waiting[-1][0] <= offset:
            waiting.append((offset, sync, future))
        else:
            # A retried batch waits for the offset of its first copy.
            waiting.insert(bisect_right(waiting, offset, key=_offset), (offset, sync, future))
        return future

    def take(self, high_watermark: int) -> list[tuple[int, bool, asyncio.Future[None]]]:
        """Remove and return the futures whose records are now committed."""
        count = bisect_right(self.waiting, high_watermark, key=_offset)
        taken = self.waiting[:count]
        del self.waiting[:count]
        return taken

    def fail(self, error: ApiError) -> None:
        """Fail all futures: as far as this broker knows, their records will not be committed."""
        waiting, self.waiting = self.waiting, []
        for _, _, future in waiting:
            fail_quietly(future, error)


def fail_quietly(future: asyncio.Future[Any], error: ApiError) -> None:
    """Fail a future. The caller may have disconnected; the exception need not be retrieved."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def follow(source: asyncio.Future[None], target: asyncio.Future[None]) -> None:
    """Complete `target` the way `source` completes."""

    def copy(done: asyncio.Future[None]) -> None:
        if target.done():
            return
        if done.cancelled():
            target.cancel()
        elif (error := done.exception()) is not None:
            target.set_exception(error)
            target.exception()
        else:
            target.set_result(None)

    if source.done():
        copy(source)
    else:
        source.add_done_callback(copy)
