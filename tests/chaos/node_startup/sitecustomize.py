"""Loaded by every Python process that has this directory in PYTHONPATH: nodes whose clock is wrong, or who slip.

PENSTOCK_CHAOS_CLOCK names a directory with a file for each node, named after its settings: the seconds by which its
clock is wrong, eight bytes in this machine's order. Tests may write to it while the node runs. Only wall-clock time is
shifted, as when somebody sets a machine's clock.
PENSTOCK_CHAOS_BREAK names one of the slips of `sim.broken`.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path

SLIPS: list[object] = []


def shift_clock(directory: str) -> None:
    """Add what the node's file says to all wall-clock time."""
    properties = next((Path(word) for word in sys.orig_argv if word.endswith(".properties")), None)
    if properties is None:
        return
    with (Path(directory) / properties.stem).open("rb") as file:
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
    # One that nobody holds would be undone.
    SLIPS.append(slipping)


if "PENSTOCK_CHAOS_CLOCK" in os.environ:
    shift_clock(os.environ["PENSTOCK_CHAOS_CLOCK"])
if "PENSTOCK_CHAOS_BREAK" in os.environ:
    slip(os.environ["PENSTOCK_CHAOS_BREAK"])
