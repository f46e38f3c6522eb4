"""Threads for blocking work. Syncs are many and short, so a piece of work costs little more than waking a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from weakref import finalize

T = TypeVar("T")
Piece = tuple[Callable[[], object], "asyncio.Future[Any]"]


class Workers:
    """At most `threads_max` threads, started when they are first needed. To be used from one event loop."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._threads: list[Thread] = []
        self._unfinished = 0
        self._pieces: SimpleQueue[Piece | None] = SimpleQueue()
        self._end = finalize(self, self._pieces.put, None)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """A future of what `work` returns or raises. Cancelled before its turn, it is not run."""
        if not self._end.alive:
            raise RuntimeError("the workers have ended")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.add_done_callback(self._finished)
        self._unfinished += 1
        if len(self._threads) < min(self._unfinished, self._threads_max):
            name = f"{self._name}_{len(self._threads)}"
            thread = Thread(target=_work, args=(self._pieces,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._pieces.put((work, future))
        return future

    @property
    def queued(self) -> int:
        """How many pieces of work wait for a thread."""
        return self._pieces.qsize()

    def close(self) -> None:
        """Wait until everything is done; no more is accepted."""
        self._end()
        for thread in self._threads:
            thread.join()

    def _finished(self, _: asyncio.Future[Any]) -> None:
        self._unfinished -= 1


def _work(pieces: SimpleQueue[Piece | None]) -> None:
    while (piece := pieces.get()) is not None:
        _run(*piece)
        # An idle thread keeps nothing alive.
        piece = None
    # The other threads end too.
    pieces.put(None)


def _run(work: Callable[[], object], future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        return
    result, error = None, None
    try:
        result = work()
    except BaseException as problem:  # noqa: BLE001 - the waiting caller gets it
        error = problem
    # On a loop that is closed no task waits any more.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[object], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
