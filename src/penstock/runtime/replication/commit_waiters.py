"""Those who wait until records are committed: in the order of offsets, woken as the high watermark passes them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from operator import itemgetter
from typing import Any

from penstock.model.errors import ApiError

_offset = itemgetter(0)


class CommitWaiters:
    """The futures of one partition. `waiting` is empty when nobody waits."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        # Offset, whether the disk is to be waited for as well, and who waits.
        self.waiting: list[tuple[int, bool, asyncio.Future[None]]] = []

    def wait(self, offset: int, sync: bool) -> asyncio.Future[None]:
        """A future for everything before `offset`; `sync` is handed back with it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self.waiting
        if not waiting or waiting[-1][0] <= offset:
            waiting.append((offset, sync, future))
        else:
            # A batch that is sent again waits for where its first copy went.
            waiting.insert(bisect_right(waiting, offset, key=_offset), (offset, sync, future))
        return future

    def take(self, high_watermark: int) -> list[tuple[int, bool, asyncio.Future[None]]]:
        """Those whose records are committed now; they wait here no longer."""
        count = bisect_right(self.waiting, high_watermark, key=_offset)
        taken = self.waiting[:count]
        del self.waiting[:count]
        return taken

    def fail(self, error: ApiError) -> None:
        """What they wait for will not come, as far as this broker can tell."""
        waiting, self.waiting = self.waiting, []
        for _, _, future in waiting:
            fail_quietly(future, error)


def fail_quietly(future: asyncio.Future[Any], error: ApiError) -> None:
    """Fail a future. Whoever waited may have gone away, which is no reason for the loop to complain."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def follow(source: asyncio.Future[None], target: asyncio.Future[None]) -> None:
    """End `target` the way `source` ends."""

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
