"""When a disk will be full if it continues to fill as it did in the last hours.

The growth between two looks at a disk is what was written less what was deleted. One large deletion does not predict
the next hours, and is left out; where deletions come again and again, as retention's do, they are part of the rate.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

SAMPLE_MS = 60_000
WINDOW_MS = 6 * 3_600_000
# With less than this the rate would be a guess.
SPAN_MS_MIN = 5 * 60_000
# From so many deletions on they count as regular.
REGULAR_DELETIONS = 3


class DiskForecast:
    """The growth of one disk's used bytes."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=WINDOW_MS // SAMPLE_MS + 1)

    def note(self, now_ms: int, used_bytes: int) -> None:
        """Look at the disk; only one look a minute is kept."""
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append((now_ms, used_bytes))

    def bytes_per_second(self) -> float | None:
        """How fast the disk fills, None while that is not known; 0 if it does not."""
        samples = self._samples
        if not samples or samples[-1][0] - samples[0][0] < SPAN_MS_MIN:
            return None
        steps = [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(samples)]
        deletions = sum(grown < 0 for _, grown in steps)
        if deletions < REGULAR_DELETIONS:
            steps = [step for step in steps if step[1] >= 0]
        elapsed_ms = sum(step[0] for step in steps)
        assert elapsed_ms >= 0
        return max(0.0, 1000 * sum(step[1] for step in steps) / elapsed_ms) if elapsed_ms else None

    def full_in_ms(self, used_bytes: int, limit_bytes: float) -> int | None:
        """How long until `limit_bytes` are used at this rate; None if that is unknown or not in sight."""
        rate = self.bytes_per_second()
        if not rate:
            return None
        return max(0, int(1000 * (limit_bytes - used_bytes) / rate))
