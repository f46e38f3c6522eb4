"""State files of running pipelines on this machine, by which other commands find and stop them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from penstock.spark.pipelines.progress import PipelineStatus, QueryStatus

STOP_TIMEOUT_SECONDS = 60.0
# Zombie and dead: the process has exited, but its parent has not collected it yet.
EXITED_STATES = "ZX"


def state_directory() -> Path:
    """The directory of the state files."""
    base = os.environ.get("PENSTOCK_STATE") or os.environ.get("XDG_STATE_HOME")
    home = Path(base) if base else Path.home() / ".local" / "state"
    return home / "penstock" / "pipelines"


@contextmanager
def state_file(status: PipelineStatus) -> Iterator[None]:
    """Keep a state file while the block runs."""
    write_state(status)
    try:
        yield
    finally:
        _path(status.name).unlink(missing_ok=True)


def write_state(status: PipelineStatus) -> None:
    """Rewrite the state file atomically."""
    path = _path(status.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(status)), "utf-8")
    partial.replace(path)


def running() -> list[PipelineStatus]:
    """This user's pipelines that are running on this machine."""
    found = []
    for path in sorted(state_directory().glob("*.json")):
        try:
            fields = json.loads(path.read_text("utf-8"))
            queries = [QueryStatus(**each) for each in fields.pop("queries")]
            status = PipelineStatus(**fields, queries=queries)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if process_started(status.pid) == status.process_started:
            found.append(status)
    return found


def stop(name: str, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> bool:
    """Terminate a running pipeline; False if there is none of that name, raises TimeoutError if it does not exit."""
    chosen = [status for status in running() if status.name == name]
    for status in chosen:
        os.kill(status.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while process_started(status.pid) == status.process_started:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} (pid {status.pid}) did not exit within {timeout_seconds:.0f} s")
            time.sleep(0.1)
    return bool(chosen)


def process_started(pid: int) -> int | None:
    """When a live process started, in kernel ticks: distinguishes it from an earlier process with the same pid."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in EXITED_STATES else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _path(name: str) -> Path:
    return state_directory() / f"{name}.json"
