"""The process that counts keys: `python -m penstock.runtime.hot_keys.worker`, one job per process.

It reads the job, a line of JSON, counts, writes the reports as another line, and ends. It runs at the lowest priority,
so that it takes what the broker leaves.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.hot_keys.tally import HotKey, Report, Tally
from penstock.wire.record_types import BatchError, CorruptBatch
from penstock.wire.records import HEADER_SIZE, read_header

MODULE = "penstock.runtime.hot_keys.worker"
NICENESS = 19
CHUNK_BYTES = 512 * 1024
# What one batch may decompress to.
BATCH_BYTES_MAX = 32 * 1024 * 1024

Read = Callable[[str, int, int], bytes]


class Piece(NamedTuple):
    """Whole batches in one file; records before `first_offset` don't count."""

    path: str
    position: int
    size_bytes: int
    first_offset: int


class Job(NamedTuple):
    """The pieces of each partition, in order, and the limits for all of them together, time aside."""

    partitions: list[list[Piece]]
    records_max: int
    keys_max: int
    time_ms_max: int


class Counted(NamedTuple):
    """A partition's report, which is of what could be read before the problem, if there is one."""

    report: Report
    problem: str = ""


class Outcome(NamedTuple):
    """What was counted, in the order of the job's partitions, and the seconds of work that it took."""

    counted: list[Counted]
    work_s: float


def timed_count(job: Job, read: Read) -> Outcome:
    """Do a job in a thread of this process."""
    began_s = time.thread_time()
    return Outcome(count(job, read), time.thread_time() - began_s)


def count(job: Job, read: Read) -> list[Counted]:
    """Do a job."""
    deadline = time.monotonic() + job.time_ms_max / 1000
    records_max = max(1, job.records_max // max(1, len(job.partitions)))
    return [_count(pieces, read, records_max, job.keys_max, deadline) for pieces in job.partitions]


def _count(pieces: list[Piece], read: Read, records_max: int, keys_max: int, deadline: float) -> Counted:
    tally = Tally()
    problem = ""
    try:
        for piece in pieces:
            position, end = piece.position, piece.position + piece.size_bytes
            while position < end and tally.records < records_max and time.monotonic() < deadline:
                position += _add(tally, piece, position, end, read)
    except (BatchError, OSError) as error:
        # Files are deleted, and replaced by compacted ones.
        problem = str(error)
    return Counted(tally.report(keys_max), problem)


def _add(tally: Tally, piece: Piece, position: int, end: int, read: Read) -> int:
    """Count whole batches from `position` on; returns their size in bytes."""
    data = read(piece.path, position, min(CHUNK_BYTES, end - position))
    whole = 0
    while len(data) - whole >= HEADER_SIZE:
        size = read_header(data, whole).size_bytes
        if size > end - position - whole:
            raise CorruptBatch("a batch is cut short")
        if whole + size > len(data):
            if whole:
                break
            data = read(piece.path, position, size)
            if len(data) < size:
                break
        whole += size
    if not whole:
        raise CorruptBatch("a file is cut short")
    tally.add(data[:whole], piece.first_offset, BATCH_BYTES_MAX)
    return whole


def encode_job(job: Job) -> bytes:
    """A job as one line."""
    return json.dumps(job).encode() + b"\n"


def decode_job(line: bytes) -> Job:
    """The job in a line."""
    partitions, *limits = json.loads(line)
    return Job([[Piece(*piece) for piece in pieces] for pieces in partitions], *limits)


def encode_outcome(outcome: Outcome) -> bytes:
    """The outcome of a job as one line."""
    rows: list[object] = []
    for report, problem in outcome.counted:
        keys = [[one.key.hex(), *one[1:]] for one in report.keys]
        rows.append([[*report[:-1], keys], problem])
    return json.dumps([rows, outcome.work_s]).encode() + b"\n"


def decode_outcome(line: bytes) -> Outcome:
    """The outcome in a line."""
    counted = []
    rows, work_s = json.loads(line)
    for (*numbers, keys), problem in rows:
        hot = [HotKey(bytes.fromhex(key), *rest) for key, *rest in keys]
        counted.append(Counted(Report._make([*numbers, hot]), problem))
    return Outcome(counted, work_s)


def _read_file(path: str, position: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)


def main() -> None:
    """Do the job on the standard input."""
    os.nice(NICENESS)
    job = decode_job(sys.stdin.buffer.readline())
    counted = count(job, _read_file)
    # The whole process is for this job.
    sys.stdout.buffer.write(encode_outcome(Outcome(counted, time.process_time())))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
