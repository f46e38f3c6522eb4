"""One process on virtual time: its loop, its workers, its disk.

A worker does its work at one moment, a millisecond after it was requested. If one of its operations stalls, the rest of
the work happens that much later, and the loop continues meanwhile. An operation of the loop that stalls holds all up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from enumerate.disk import StepFilesystem
from penstock.runtime.env import Network
from penstock.storage.files import File, Filesystem
from penstock.storage.tier.object_store import ObjectStore
from sim.disk import SimDisk
from sim.scheduler import SECOND_US, Scheduler, SimCrash, SimLoop

T = TypeVar("T")

BEGIN_MS = 1_700_000_000_000
WORK_S = 0.001
LONGEST_S = 600


class Stuck(Exception):
    """What was awaited did not come."""


class Process:
    """An `Env`: everything that the code under test has of the outside world."""

    network: Network

    def __init__(self, disk: SimDisk, boot_id: str, begin_ms: int = BEGIN_MS) -> None:
        self.scheduler = Scheduler()
        self.loop: Any = SimLoop(self.scheduler, "broker")
        self.steps = StepFilesystem(disk, self.now_ms)
        self.filesystem: Filesystem = self.steps
        self.random = Random(7)
        self.boot_id = boot_id
        self.open_logs_max = 1_000
        self.open_store_here: Callable[[], ObjectStore] | None = None
        self._begin_ms = begin_ms
        self._worker: _Worker | None = None
        self._is_working = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.steps.is_on_loop = lambda: not self._is_working
        self.steps.stall = self._stall

    def now_ms(self) -> int:
        return self._begin_ms + self.scheduler.now_us // 1000

    def monotonic_ms(self) -> int:
        return self.scheduler.now_us // 1000

    def run(self, work: Coroutine[Any, Any, T], seconds: float = LONGEST_S) -> T:
        """Let time pass until it is done."""
        task: asyncio.Task[T] = self.loop.create_task(work)
        self.scheduler.run(self.scheduler.now_us + int(seconds * SECOND_US), task.done)
        if not task.done():
            raise Stuck(f"{work.__qualname__} did not end within {seconds} s")
        return task.result()

    def die(self) -> None:
        """Nothing of this process runs or touches the disk any more."""
        self.steps.dead = True
        if self._worker is not None:
            self._worker.abandon()
        self.loop.kill()
        # Otherwise the garbage collector would unwind them at some other time.
        for task in asyncio.all_tasks(self.loop):
            coroutine = task.get_coro()
            with contextlib.suppress(Exception, SimCrash):
                if isinstance(coroutine, Coroutine):
                    coroutine.close()

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.loop.create_future()
        self.loop.call_later(WORK_S, self._work, work, future)
        return future

    def sync(self, file: File) -> asyncio.Future[None]:
        return self.run_blocking(file.sync)

    def _work(self, work: Callable[[], T], future: asyncio.Future[T]) -> None:
        if future.cancelled():
            return
        trouble = self.steps.trouble
        if trouble is not None and trouble.fault == "stall" and self.steps.struck is None:
            if self._worker is not None:
                # One after the other: which of them stalls must not depend on threads.
                self.loop.call_later(WORK_S, self._work, work, future)
                return
            self._worker = _Worker(work)
            self._resume(future)
            return
        self._is_working = True
        try:
            result = work()
        except Exception as error:  # noqa: BLE001
            self._finish(future.set_exception, error, future)
        else:
            self._finish(future.set_result, result, future)
        finally:
            self._is_working = False

    def _resume(self, future: asyncio.Future[Any]) -> None:
        worker = self._worker
        assert worker is not None
        self._is_working = True
        pause_ms = worker.proceed()
        self._is_working = False
        if pause_ms is not None:
            self.loop.call_later(pause_ms / 1000, self._resume, future)
            return
        self._worker = None
        if worker.error is not None:
            self._finish(future.set_exception, worker.error, future)
        else:
            self._finish(future.set_result, worker.result, future)

    @staticmethod
    def _finish(finish: Callable[[Any], None], value: Any, future: asyncio.Future[Any]) -> None:
        if not future.done():
            finish(value)

    def _stall(self, duration_ms: int) -> None:
        if self._is_working and self._worker is not None:
            self._worker.pause(duration_ms)
        else:
            self.scheduler.now_us += duration_ms * 1000

    def open_store(self, url: str, options: Mapping[str, str], timeout_ms: int) -> ObjectStore:  # noqa: ARG002
        assert self.open_store_here is not None
        return self.open_store_here()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            text = f"background task {task.get_name()} failed"
            self.loop.call_exception_handler({"message": text, "exception": task.exception()})

    async def close(self) -> None:
        """Cancel every task."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Worker:
    """A piece of work in a thread of its own, which runs only while the loop waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self._work = work
        self._pause_ms: int | None = None
        self._is_abandoned = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001
            self.error = error
        except SimCrash:
            self._is_abandoned = True
        self._pause_ms = None
        self._stopped.release()

    def proceed(self) -> int | None:
        """Go on to the end, or to where it pauses; returns for how long."""
        self._go.release()
        self._stopped.acquire()
        return self._pause_ms

    def pause(self, duration_ms: int) -> None:
        """Called in the thread: nothing more happens there for a while."""
        self._pause_ms = duration_ms
        self._stopped.release()
        self._go.acquire()
        if self._is_abandoned:
            raise SimCrash("the process is gone")

    def abandon(self) -> None:
        """The process is gone."""
        self._is_abandoned = True
        self._go.release()
        self._thread.join()
