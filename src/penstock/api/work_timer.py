"""Measures how long a coroutine works, as opposed to waits.

A handler that waits for others runs in a task, in steps: from one wait to the next. Only the steps count, so that its
client can be charged for what it costs and not for how long it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class WorkTimer:
    """The time that the steps of one coroutine have taken so far."""

    __slots__ = ("_clock", "_spent_s", "_step_began")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spent_s = 0.0
        self._step_began: float | None = None

    @property
    def spent_s(self) -> float:
        """Seconds of work, the present step included."""
        began = self._step_began
        return self._spent_s if began is None else self._spent_s + self._clock() - began

    def measured(self, work: Coroutine[Any, Any, T]) -> Coroutine[object, object, T]:
        """The coroutine, which this timer measures from now on."""
        return _Measured(self, work)

    def begin_step(self) -> None:
        """The coroutine continues."""
        self._step_began = self._clock()

    def end_step(self) -> None:
        """The coroutine waits, or is done."""
        self._spent_s, self._step_began = self.spent_s, None


class _Measured(Coroutine[object, object, T]):
    """A coroutine that reports to a timer when it continues and when it waits."""

    __slots__ = ("_timer", "_work")

    def __init__(self, timer: WorkTimer, work: Coroutine[Any, object, T]) -> None:
        self._timer = timer
        self._work = work

    def send(self, value: Any) -> object:
        self._timer.begin_step()
        try:
            return self._work.send(value)
        finally:
            self._timer.end_step()

    def throw(self, *error: Any) -> Any:
        self._timer.begin_step()
        try:
            return self._work.throw(*error)
        finally:
            self._timer.end_step()

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[object, object, T]:
        raise NotImplementedError("it is run by a task")
