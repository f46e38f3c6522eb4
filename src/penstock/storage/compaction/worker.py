"""The process that cleans logs: `python -m penstock.storage.compaction.worker`, one job per process.

It communicates in lines of JSON. It reads the job; it writes each cleaned segment and waits for an empty line before it
continues, so that no more than one waits to be swapped in. The report, or the error, comes last. When its input closes,
its owner is gone, and it exits at once. It runs at the lowest priority.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

from penstock.core.lifecycle.retention import SegmentFacts
from penstock.storage.compaction.clean import Compaction, CompactionError, CompactionJob, CompactionReport
from penstock.storage.compaction.swap import CleanedSegment
from penstock.storage.files import OsFilesystem

MODULE = "penstock.storage.compaction.worker"
NICENESS = 19
PIPE_CHUNK_BYTES = 1024 * 1024

CLEANED = "cleaned"
REPORT = "report"
ERROR = "error"
PASSING = "passing"
DISK_FAILURE = "diskFailure"
DAMAGE = "damage"


class Pacer:
    """Sleeps so that no more than `bytes_per_second` pass, measured over a tenth of a second or longer."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._bytes = 0

    def __call__(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        due = self._bytes / self._bytes_per_second
        spent = self._clock() - self._since
        if due > spent + 0.1:
            self._sleep(due - spent)
        if spent > 1.0:
            # Bytes that were not used in a quiet second are not made up for later.
            self._since, self._bytes = self._clock(), 0


def encode_job(job: CompactionJob) -> bytes:
    """A job as one line."""
    return json.dumps({**asdict(job), "seed": job.seed.hex()}).encode() + b"\n"


def decode_job(line: bytes) -> CompactionJob:
    fields: dict[str, Any] = json.loads(line)
    for name in ("segments", "later_segments"):
        fields[name] = tuple(SegmentFacts(**each) for each in fields[name])
    fields["seed"] = bytes.fromhex(fields["seed"])
    fields["producers"] = tuple(tuple(each) for each in fields["producers"])
    return CompactionJob(**fields)


def decode_answer(line: bytes) -> CleanedSegment | CompactionReport:
    """A message of the worker; raises its CompactionError."""
    answer: dict[str, Any] = json.loads(line)
    if CLEANED in answer:
        fields = answer[CLEANED]
        fields["replaces"] = tuple(tuple(each) for each in fields["replaces"])
        return CleanedSegment(**fields)
    if REPORT in answer:
        return CompactionReport(**answer[REPORT])
    raise CompactionError(
        answer[ERROR],
        is_passing=answer[PASSING],
        is_disk_failure=answer.get(DISK_FAILURE, False),
        is_damage=answer.get(DAMAGE, False),
    )


def main() -> None:
    """Do the job on standard input."""
    os.nice(NICENESS)
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    job = decode_job(lines.get())
    compaction = Compaction(job, OsFilesystem(), Pacer(job.bytes_per_second_max))
    try:
        for cleaned in compaction.run():
            _say({CLEANED: asdict(cleaned)})
            lines.get()
        _say({REPORT: asdict(compaction.report)})
    except CompactionError as error:
        flags = {PASSING: error.is_passing, DISK_FAILURE: error.is_disk_failure, DAMAGE: error.is_damage}
        _say({ERROR: error.message, **flags})


def _listen(lines: SimpleQueue[bytes]) -> None:
    pending = b""
    while chunk := os.read(sys.stdin.fileno(), PIPE_CHUNK_BYTES):
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            lines.put(line)
    os._exit(1)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
