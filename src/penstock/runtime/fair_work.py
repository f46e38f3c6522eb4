"""Work that takes a processor for long, run by the environment's workers without starving others.

A client has at most one piece of work at a time with a worker, and clients take turns; few workers are used at once, so
that there are always some for disks. A client whose work is full is to be held back before it requests more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.runtime.env import Env

T = TypeVar("T")

WORKERS_USED_MAX = 2
# What the work that is not done may hold: of one client, and of all.
CLIENT_BYTES_MAX = 16 * 1024 * 1024
ALL_BYTES_MAX = 256 * 1024 * 1024

Piece = tuple[Callable[[], object], "asyncio.Future[Any]", int]


class FairWork:
    """Queues of work, one for each client."""

    def __init__(self, env: Env, workers_max: int = WORKERS_USED_MAX) -> None:
        self._env = env
        self._workers_max = workers_max
        # In the order of the clients' turns.
        self._queues: dict[str, deque[Piece]] = {}
        self._running: set[str] = set()
        self._bytes: dict[str, int] = {}
        # What the work of all clients that is not done holds.
        self.held_bytes = 0

    def is_full(self, client: str) -> bool:
        """Whether the client should wait before it requests more."""
        return self._bytes.get(client, 0) > CLIENT_BYTES_MAX or self.held_bytes > ALL_BYTES_MAX

    def run(self, client: str, work: Callable[[], T], size_bytes: int) -> asyncio.Future[T]:
        """A future of what `work`, which holds so many bytes, returns or raises, once it was the client's turn."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append((work, done, size_bytes))
        self._bytes[client] = self._bytes.get(client, 0) + size_bytes
        self.held_bytes += size_bytes
        self._start()
        return done

    def _start(self) -> None:
        while len(self._running) < self._workers_max:
            client = next((name for name in self._queues if name not in self._running), None)
            if client is None:
                return
            queue = self._queues[client]
            work, done, size_bytes = queue.popleft()
            if not queue:
                del self._queues[client]
            if done.done():
                self._forget(client, size_bytes)
                continue
            self._running.add(client)
            self._env.run_blocking(work).add_done_callback(partial(self._ended, client, done, size_bytes))

    def _forget(self, client: str, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        left = self._bytes[client] - size_bytes
        if left:
            self._bytes[client] = left
        else:
            del self._bytes[client]

    def _ended(self, client: str, done: asyncio.Future[object], size_bytes: int, ended: asyncio.Future[Any]) -> None:
        self._running.discard(client)
        self._forget(client, size_bytes)
        queue = self._queues.pop(client, None)
        if queue is not None:
            # Behind all others.
            self._queues[client] = queue
        if ended.cancelled():
            done.cancel()
        elif not done.done():
            error = ended.exception()
            if error is None:
                done.set_result(ended.result())
            else:
                done.set_exception(error)
        else:
            # The requester has gone, and no other caller looks at the outcome.
            ended.exception()
        self._start()
