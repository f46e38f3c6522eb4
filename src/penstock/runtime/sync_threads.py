"""Syncs of files, in threads that the event loop does not have to make room for."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.storage.files import OsFile, storage_error

if TYPE_CHECKING or os.environ.get("PENSTOCK_PURE") == "1":
    SyncPool: Any = None
else:
    try:
        from penstock.storage._syncs import SyncPool
    except ImportError:
        SyncPool = None

IS_NATIVE = SyncPool is not None


class SyncThreads:
    """Started with the first sync. To be used from one event loop, and only if IS_NATIVE."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: Any = None
        self._ends = (-1, -1)
        self._loop: asyncio.AbstractEventLoop | None = None
        # Files stay open until they are synced.
        self._unfinished: dict[int, tuple[OsFile, asyncio.Future[None]]] = {}
        self._number = 0

    def sync(self, file: OsFile) -> asyncio.Future[None]:
        """As `OsFile.sync`; whether the future is cancelled or not, the file is synced."""
        loop = asyncio.get_running_loop()
        if self._pool is None:
            self._start(loop)
        future: asyncio.Future[None] = loop.create_future()
        self._number += 1
        self._unfinished[self._number] = (file, future)
        self._pool.submit(file.fileno(), self._number)
        return future

    @property
    def queued(self) -> int:
        """How many syncs wait for a thread."""
        return max(0, len(self._unfinished) - self._threads)

    def close(self) -> None:
        """Wait until everything is done; no more is accepted."""
        if self._pool is None:
            return
        self._pool.close()
        self._settle()
        # The loop may be closed already.
        with suppress(RuntimeError):
            assert self._loop is not None
            self._loop.remove_reader(self._ends[0])
        for end in self._ends:
            os.close(end)
        self._pool = None

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pool = SyncPool(self._threads, self._ends[1])
        loop.add_reader(self._ends[0], self._ready)

    def _ready(self) -> None:
        # Before looking: a byte that comes later announces what comes later.
        with suppress(BlockingIOError):
            os.read(self._ends[0], 64)
        self._settle()

    def _settle(self) -> None:
        for number, code in self._pool.take():
            file, future = self._unfinished.pop(number)
            if future.done():
                continue
            if code:
                future.set_exception(storage_error("sync", file.path, OSError(code, os.strerror(code))))
            else:
                future.set_result(None)
