"""Is a consumer keeping up? Judged by its recent commits, by Burrow's rules: there is no fixed threshold of lag.

- OK: it was caught up at the beginning or the end of the window, or its lag does not grow.
- WARN: it commits and advances, but its lag grows.
- STALL: it commits the same offset repeatedly while there is more to read.
- STOP: its last commit is longer ago than its commits in the window took, and there is more to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from penstock.core.group.offsets.offsets import Commit

# A window shorter than this is too short to estimate the pace of commits.
WINDOW_MS_MIN = 60_000


class LagStatus(IntEnum):
    """How a partition, or the worst partition of a group, is doing."""

    OK = 0
    WARN = 1
    STALL = 2
    STOP = 3


def judge(commits: Sequence[Commit], lag_at_first: int, lag_now: int, now_ms: int) -> LagStatus:
    """The status of one partition. `lag_at_first` is the lag at the first of `commits` when it was made."""
    if lag_now <= 0 or not commits:
        return LagStatus.OK
    first, last = commits[0], commits[-1]
    if now_ms - last.timestamp_ms > max(last.timestamp_ms - first.timestamp_ms, WINDOW_MS_MIN):
        return LagStatus.STOP
    if lag_at_first <= 0 or len(commits) < 2:
        return LagStatus.OK
    if last.offset == first.offset:
        return LagStatus.STALL
    return LagStatus.WARN if lag_now > lag_at_first else LagStatus.OK


def worst(statuses: Iterable[LagStatus]) -> LagStatus:
    """The status of a group is that of its worst partition."""
    return max(statuses, default=LagStatus.OK)
