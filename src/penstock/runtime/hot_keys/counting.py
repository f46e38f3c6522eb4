"""Counts keys at the end of partitions: what to read is located on the loop, and read and counted in a process.

Nothing is kept and nothing is counted without a request. An answer has a budget of records, bytes and time, which the
partitions of the request share; when it is used up, what was counted until then is the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.fair_turns import FairTurns
from penstock.runtime.hot_keys.worker import MODULE, Job, Outcome, Piece, decode_outcome, encode_job, timed_count
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import File, OsFilesystem

RECORDS_MAX = 1_000_000
BYTES_MAX = 128 * 1024 * 1024
TIME_MS_MAX = 10_000
# For the process to start and to end, on a busy machine.
GRACE_MS = 10_000
# Requests wait for each other, and their users take turns; more than this of one user, or of all, are refused.
WAITING_OF_USER_MAX = 2
WAITING_MAX = 16

logger = logging.getLogger("penstock.hot_keys")


class HotKeys:
    """Answers one request after the other, of each user in turn."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._turns: FairTurns[str] = FairTurns(1)

    async def count(self, partitions: Sequence[Partition], records_max: int, keys_max: int, user: str = "") -> Outcome:
        """What is at the end of each partition; raises ApiError."""
        if self._turns.waiting_of(user) >= WAITING_OF_USER_MAX or self._turns.waiting >= WAITING_MAX:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "hot keys are being counted for others; try again")
        async with self._turns.turn(user):
            return await self._count(partitions, min(max(1, records_max), RECORDS_MAX), keys_max)

    async def _count(self, partitions: Sequence[Partition], records_max: int, keys_max: int) -> Outcome:
        shares = max(1, len(partitions))
        files: dict[str, File] = {}
        located = []
        for partition in partitions:
            located.append(_locate(partition, max(1, records_max // shares), BYTES_MAX // shares, files))
            await asyncio.sleep(0)
        job = Job(located, records_max, keys_max, TIME_MS_MAX)
        if isinstance(self._env.filesystem, OsFilesystem):
            try:
                return await _count_in_process(job)
            except OSError as error:
                logger.warning("cannot start a process to count keys, using a thread: %s", error)
        return await self._env.run_blocking(lambda: timed_count(job, lambda path, *place: files[path].read(*place)))


def _locate(partition: Partition, records: int, size_bytes: int, files: dict[str, File]) -> list[Piece]:
    """Where the last records of a partition are, as many as fit into `size_bytes`."""
    log, end_offset = partition.log, partition.high_watermark
    held = max(1, log.end_offset - log.local_start_offset)
    # Records are of about the same size, so that the last of them fit.
    records = max(1, min(records, size_bytes * held // max(1, log.size_bytes)))
    offset = max(log.local_start_offset, end_offset - records)
    pieces: list[Piece] = []
    for following in [*(facts.base_offset for facts in log.segment_facts()), end_offset]:
        if following <= offset or offset >= end_offset or size_bytes <= 0:
            continue
        piece = partition.read(offset, size_bytes, committed_only=False, minimum_one_batch=True)
        if piece.file is not None:
            files[str(piece.file.path)] = piece.file
            pieces.append(Piece(str(piece.file.path), piece.position, piece.size, offset))
            size_bytes -= piece.size
        offset = following
    return pieces


async def _count_in_process(job: Job) -> Outcome:
    """Raises OSError if no process starts, ApiError if it does not answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", MODULE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout((job.time_ms_max + GRACE_MS) / 1000):
            answer, _ = await process.communicate(encode_job(job))
    except TimeoutError:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "counting keys took too long; ask for fewer records") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        text = f"the process that counts keys ended with code {process.returncode}"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    return decode_outcome(answer)
