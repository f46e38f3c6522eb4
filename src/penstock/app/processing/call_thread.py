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
    """Makes calls in order until `close`. A call that depends on later calls uses `wait`, which makes them."""

    def __init__(self, name: str) -> None:
        # None wakes the thread up, to see what has changed.
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._is_closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call behind those submitted before it."""
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def wait(self, future: Future[T], timeout_s: float) -> T:
        """Within a call: wait for a future that may need further calls of this thread, making those calls meanwhile."""
        future.add_done_callback(lambda _: self._calls.put(None))
        deadline = time.monotonic() + timeout_s
        while not future.done():
            try:
                self._make(self._calls.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                raise TimeoutError(f"it took longer than {timeout_s:g} s") from None
        return future.result()

    def close(self) -> None:
        """Stop the thread once the calls submitted so far are made."""
        self._is_closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while not (self._is_closed and self._calls.empty()):
            self._make(self._calls.get())

    @staticmethod
    def _make(item: tuple[Callable[[], object], Future[object]] | None) -> None:
        if item is None or not item[1].set_running_or_notify_cancel():
            return
        call, future = item
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the future gets it
            future.set_exception(error)
