"""The world a shell lives in: clock, chance, disk, workers, tasks. The simulator passes another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from typing import Any, Protocol, TypeVar

from penstock.storage.files import Filesystem, OsFilesystem

T = TypeVar("T")

WORKERS_MAX = 4

logger = logging.getLogger("penstock.runtime")


class Env(Protocol):
    """What a shell may ask of the outside."""

    random: Random
    filesystem: Filesystem

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work off the loop."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that is owned here: its failure is loud, and `close` cancels it."""


class SystemEnv:
    """The real world."""

    def __init__(self) -> None:
        self.random: Random = SystemRandom()
        self.filesystem: Filesystem = OsFilesystem()
        self._workers = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="penstock-disk")
        self._tasks: set[asyncio.Task[None]] = set()

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work on a worker thread."""
        return asyncio.get_running_loop().run_in_executor(self._workers, work)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start an owned task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task and let the workers finish."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.shutdown(wait=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("background task %s failed", task.get_name(), exc_info=task.exception())
