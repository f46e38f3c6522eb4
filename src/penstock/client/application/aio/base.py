"""What the asyncio clients do differently from the blocking ones, whose calls they make in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from penstock.client.application.admin import Admin
from penstock.client.application.aio.worker import Worker
from penstock.client.closing import AsyncClosing

P = ParamSpec("P")
T = TypeVar("T")


class AsyncAdmin(AsyncClosing):
    """Calls an `Admin`, which several threads may use at once."""

    def __init__(self, sync: Admin) -> None:
        self._sync = sync

    async def _close(self) -> None:
        await asyncio.to_thread(self._sync.close)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(call, *args, **kwargs)


class Buffered(Protocol):
    """A blocking consumer, which fetches in one step and hands out in another."""

    @property
    def has_buffered(self) -> bool:
        """Whether the next `poll` returns at once."""

    def close(self) -> None:
        """Leave the group."""

    def _fill(self, timeout_s: float) -> None: ...


class Polling(AsyncClosing):
    """Calls a consumer in one thread, in order."""

    def __init__(self, sync: Buffered) -> None:
        self._sync = sync
        self._worker = Worker("penstock-consumer")

    async def _close(self) -> None:
        await self._worker.close(self._sync.close)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._worker.run(call, *args, **kwargs)

    async def _fill(self, timeout_s: float) -> None:
        # What has been fetched together needs no waiting, unless a canceled call is still at work on it.
        if not (self._sync.has_buffered and self._worker.is_idle):
            await self._run(self._sync._fill, timeout_s)
