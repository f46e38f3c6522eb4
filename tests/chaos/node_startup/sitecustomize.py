"""Loaded by Python processes that have this directory in PYTHONPATH; makes nodes whose clock is wrong, or who slip.

PENSTOCK_CHAOS_CLOCK names a directory with a file for each node, named after its settings: the seconds by which its
clock is wrong, eight bytes in this machine's order. Tests may write to it while the node runs. Only wall-clock time is
shifted, as when an operator sets a machine's clock. PENSTOCK_CHAOS_BREAK names a mutation of `sim.broken`. Processes
that were not started with a settings file are left alone.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path

SLIPS: list[object] = []


def shift_clock(path: Path) -> None:
    """Add the offset in a file to all wall-clock time."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    real_time, real_time_ns = time.time, time.time_ns

    def shift_s() -> int:
        (seconds,) = struct.unpack("q", shared[:8])
        return int(seconds)

    time.time = lambda: real_time() + shift_s()
    time.time_ns = lambda: real_time_ns() + shift_s() * 1_000_000_000


def slip(name: str) -> None:
    """Break the node for as long as it runs."""
    sys.path.append(str(Path(__file__).parents[2]))
    from sim import broken

    slipping = getattr(broken, name)()
    slipping.__enter__()
    # One that is not referenced would be undone.
    SLIPS.append(slipping)


for word in sys.orig_argv:
    if word.endswith(".properties"):
        if "PENSTOCK_CHAOS_CLOCK" in os.environ:
            shift_clock(Path(os.environ["PENSTOCK_CHAOS_CLOCK"]) / Path(word).stem)
        if "PENSTOCK_CHAOS_BREAK" in os.environ:
            slip(os.environ["PENSTOCK_CHAOS_BREAK"])
