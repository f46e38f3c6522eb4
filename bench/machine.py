"""Where the figures were taken: they mean nothing without it."""

from __future__ import annotations

import datetime
import os
import platform
import time
from pathlib import Path

SYNC_TRIALS = 200
GIBIBYTE = 1 << 30


def describe(data: Path) -> dict[str, str]:
    """Processor, memory, system, disk and the time, in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBIBYTE
    return {
        "processor": f"{os.cpu_count()} cores of {_processor()}, shared by load generator and broker",
        "memory": f"{memory:.0f} GB",
        "system": f"{_distribution()}, Linux {platform.release()}",
        "disk": f"a 200-byte write and fdatasync takes {sync_microseconds(data):.0f} µs (median)",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def sync_microseconds(directory: Path) -> float:
    """Median time of an fdatasync after a small append, on the file system that the brokers write to."""
    path = directory / "sync-trial"
    times = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(SYNC_TRIALS):
            began = time.perf_counter()
            os.write(file, b"x" * 200)
            os.fdatasync(file)
            times.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return sorted(times)[SYNC_TRIALS // 2] * 1e6


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _distribution() -> str:
    return platform.freedesktop_os_release().get("PRETTY_NAME", "an unnamed distribution")
