"""Tells whoever waits how far a run is."""

from __future__ import annotations

import sys
import time


class Progress:
    """Prints one line a finished step with the time that is probably left."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._began = time.monotonic()

    def step(self, what: str, outcome: str) -> None:
        self._done += 1
        elapsed = time.monotonic() - self._began
        left = elapsed / self._done * max(0, self._steps - self._done)
        self.note(f"[{self._done:>3}/{self._steps}, {_minutes(left)} left] {what}: {outcome}")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
