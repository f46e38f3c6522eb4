"""Virtual time: one queue of events for all machines, and an event loop per process that draws from it.

Every process (a node's or a client's) has a `SimLoop`, which asyncio takes for its event loop. All loops share one
`Scheduler`: it runs the next callback of whichever loop is first in time, and when no loop has anything to do it jumps
to the next timer. A loop that is dead never runs again, whatever it still had in mind; that is what a crash is. A loop
that is paused runs what it missed when it goes on, as a stopped process does.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any

logger = logging.getLogger("sim")

SECOND_US = 1_000_000


class SimCrash(BaseException):
    """Unwinds the stack of a process that has just died; nothing may stop it."""


class SimHandle:
    """A callback that will run, unless cancelled. Also serves as asyncio's TimerHandle."""

    __slots__ = ("_args", "_callback", "_cancelled", "_loop", "_when_us")

    def __init__(self, loop: SimLoop, callback: Callable[..., object], args: tuple[Any, ...], when_us: int) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._when_us = when_us
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = _nothing
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when_us / SECOND_US

    def __lt__(self, other: SimHandle) -> bool:
        return self._when_us < other._when_us


def _nothing() -> None:
    """What a cancelled handle does."""


class Scheduler:
    """The queue of everything that is going to happen, in virtual microseconds."""

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[int, int, SimHandle]] = []
        self._sequence = 0
        # What went wrong in callbacks of the code under test: each one is a bug of it or of the simulator.
        self.errors: list[str] = []

    def soon(self, handle: SimHandle) -> None:
        self._ready.append(handle)

    def at(self, when_us: int, handle: SimHandle) -> None:
        self._sequence += 1
        heappush(self._timers, (when_us, self._sequence, handle))

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Run events up to a moment, or until `done` (called now and then) returns True; True in the second case."""
        ready, timers = self._ready, self._timers
        set_running = events._set_running_loop
        next_look = 0
        try:
            while True:
                if timers and timers[0][0] <= self.now_us:
                    handle = heappop(timers)[2]
                elif ready:
                    handle = ready.popleft()
                elif timers and timers[0][0] <= until_us:
                    self.now_us = timers[0][0]
                    handle = heappop(timers)[2]
                else:
                    self.now_us = max(self.now_us, until_us)
                    return done is not None and done()
                if handle._cancelled:
                    continue
                loop = handle._loop
                if loop.dead:
                    continue
                if loop.paused:
                    loop.missed.append(handle)
                    continue
                self.steps += 1
                # Work takes time, however little: a process that spins does not stop the world.
                self.now_us += 1
                set_running(loop)
                try:
                    handle._callback(*handle._args)
                except SimCrash:
                    pass
                except Exception as error:  # noqa: BLE001
                    loop.call_exception_handler({"message": "a callback failed", "exception": error})
                if self.now_us >= next_look:
                    if self.now_us > until_us:
                        return done is not None and done()
                    if done is not None and done():
                        return True
                    next_look = self.now_us + 10_000
        finally:
            set_running(None)


# What of asyncio's loop nodes and clients use; the rest must not exist here.
_Loop: Any = object


class SimLoop(_Loop):  # type: ignore[misc]
    """The event loop of one simulated process."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.dead = False
        self.paused = False
        # Whether what runs now does so in a worker of the process.
        self.is_in_worker = False
        self.missed: list[SimHandle] = []

    def kill(self) -> None:
        """Nothing of this process runs any more."""
        self.dead = True
        self.missed.clear()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on with everything that was due meanwhile, in its order."""
        self.paused = False
        missed, self.missed = self.missed, []
        for handle in missed:
            self.scheduler.soon(handle)

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.scheduler.now_us / SECOND_US

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,  # noqa: ARG002
    ) -> SimHandle:
        handle = SimHandle(self, callback, args, 0)
        if not self.dead:
            self.scheduler._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,  # noqa: ARG002
    ) -> SimHandle:
        return self.call_at_us(self.scheduler.now_us + max(0, int(delay * SECOND_US)), callback, *args)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,  # noqa: ARG002
    ) -> SimHandle:
        return self.call_at_us(int(when * SECOND_US), callback, *args)

    def call_at_us(self, when_us: int, callback: Callable[..., object], *args: Any) -> SimHandle:
        """As `call_at`, in virtual microseconds."""
        handle = SimHandle(self, callback, args, when_us)
        if not self.dead:
            self.scheduler.at(when_us, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,  # noqa: ARG002
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name or f"{self.name} task")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        error = context.get("exception")
        text = f"{self.name}: {context.get('message')}: {error!r}"
        self.scheduler.errors.append(text)
        logger.error(text, exc_info=error)
