"""A thread that makes calls one after the other, for objects that only one thread may use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class CallThread:
    """Makes calls in their order until `close`. A call that waits for others to end lets them be made: see `wait`."""

    def __init__(self, name: str) -> None:
        # None wakes the thread up, to see what has changed.
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._is_closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call after those before it."""
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def wait(self, future: Future[T], timeout_s: float) -> T:
        """Within a call: wait for something that may need further calls of this thread, and make them meanwhile."""
        future.add_done_callback(lambda _: self._calls.put(None))
        deadline = time.monotonic() + timeout_s
        while not future.done():
            try:
                self._make(self._calls.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                raise TimeoutError(f"it took longer than {timeout_s:g} s") from None
        return future.result()

    def close(self) -> None:
        """End the thread after the calls that it has."""
        self._is_closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while not (self._is_closed and self._calls.empty()):
            self._make(self._calls.get())

    @staticmethod
    def _make(item: tuple[Callable[[], Any], Future[Any]] | None) -> None:
        if item is None or not item[1].set_running_or_notify_cancel():
            return
        call, future = item
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the call gets it
            future.set_exception(error)
