"""Makes a failing run's story shorter."""

from __future__ import annotations

from collections.abc import Callable


def shrink(parts: list[int], fails: Callable[[list[int]], bool], runs_max: int) -> list[int]:
    """Leave out parts one by one as long as what is left still fails; `fails` is asked at most `runs_max` times."""
    runs = 0
    position = 0
    if parts and runs_max > 0:
        runs += 1
        if fails([]):
            return []
    while position < len(parts) and runs < runs_max:
        fewer = parts[:position] + parts[position + 1 :]
        runs += 1
        if fails(fewer):
            parts = fewer
            position = 0
        else:
            position += 1
    return parts
