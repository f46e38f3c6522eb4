"""A long poll: a request that waits until enough bytes can be read, or until its wait time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from penstock.runtime.replication.partition import Partition

Response = TypeVar("Response")


class LongPoll(Generic[Response]):
    """Completes `reply` with `respond()` once `bytes_wanted` became readable in the partitions, or after `wait_ms`.

    Cancelling `reply` ends the wait.
    """

    __slots__ = ("_bytes_wanted", "_loop", "_partitions", "_respond", "_timer", "_woken", "reply")

    def __init__(
        self, partitions: Iterable[Partition], bytes_wanted: int, wait_ms: int, respond: Callable[[], Response]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._partitions = tuple(partitions)
        self._bytes_wanted = bytes_wanted
        self._respond = respond
        self._woken = False
        self.reply: asyncio.Future[Response] = self._loop.create_future()
        self.reply.add_done_callback(self._forget)
        self._timer = self._loop.call_later(wait_ms / 1000, self._complete)
        for partition in self._partitions:
            partition.listen(self.grown)

    def wake(self) -> None:
        """Answer now."""
        self.grown(self._bytes_wanted)

    def grown(self, size_bytes: int) -> None:
        """More bytes can be read."""
        self._bytes_wanted -= size_bytes
        if self._bytes_wanted <= 0 and not self._woken:
            # The producer is answered first, and what it appends next is included.
            self._woken = True
            self._loop.call_soon(self._complete)

    def _complete(self) -> None:
        if self.reply.done():
            return
        try:
            self.reply.set_result(self._respond())
        except Exception as error:  # noqa: BLE001 - the awaiting request gets it
            self.reply.set_exception(error)

    def _forget(self, _: asyncio.Future[Response]) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.unlisten(self.grown)
