"""The totals of all cleanings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from penstock.runtime.logs.cleaner import CleanerCounters


def test_cleanings_add_up_from_nothing() -> None:
    counters = CleanerCounters()
    assert (counters.runs, counters.seconds, counters.bytes_read, counters.bytes_written) == (0, 0.0, 0, 0)
    for size in (100, 10):
        counters.cleaned(cast("Any", SimpleNamespace(bytes_read=size, bytes_written=size // 2)), 0.5)
    assert (counters.runs, counters.seconds, counters.bytes_read, counters.bytes_written) == (2, 1.0, 110, 55)
