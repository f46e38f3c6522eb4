"""Looking at a broker from outside: its memory, its descriptors, the bytes in its directory."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path


def rss_bytes(pid: int | None) -> int:
    """What a process has in memory now."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peak(pid: int | None) -> None:
    """Let `peak_bytes` count from here."""
    with open(f"/proc/{pid}/clear_refs", "w") as clear_refs:
        clear_refs.write("5")


def peak_bytes(pid: int | None) -> int:
    """The most that a process has had in memory since `forget_peak`."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def descriptors(pid: int | None) -> int:
    """How many files and sockets a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def fingerprint(directory: Path) -> dict[str, str]:
    """Every file below a directory with its content's hash, and every directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
    return found


def eventually(condition: Callable[[], bool], seconds: float, interval: float = 0.05) -> bool:
    """Whether a condition comes true within a time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True
