"""CPU time and memory of a broker's process tree, and of the machine, read from /proc."""

from __future__ import annotations

import os
import resource
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KIBIBYTE = 1024


def process_tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, []))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time that the tree has used so far, children that ended included."""
    total = 0
    for member in process_tree(pid):
        fields = _stat(member)
        if fields is not None:
            total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Resident memory of the tree now."""
    return sum(_status_kibibytes(member, "VmRSS") for member in process_tree(pid)) * KIBIBYTE


def reset_peak(pid: int) -> None:
    """Let the peak of resident memory count from now."""
    for member in process_tree(pid):
        Path(f"/proc/{member}/clear_refs").write_text("5")


def peak_resident_bytes(pid: int) -> int:
    """Sum of the tree's peaks since `reset_peak`."""
    return sum(_status_kibibytes(member, "VmHWM") for member in process_tree(pid)) * KIBIBYTE


def machine_busy_seconds() -> float:
    """Time that all processors together have spent working, not waiting, since boot."""
    user, nice, system, _idle, _io_wait, irq, soft_irq, steal = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + soft_irq + steal) / TICKS_PER_SECOND


def load_generator_cpu_seconds() -> float:
    """CPU time of the bench itself and of every program it ran to its end."""
    spent = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        spent += usage.ru_utime + usage.ru_stime
    return spent


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name: state, parent, …; None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _status_kibibytes(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
