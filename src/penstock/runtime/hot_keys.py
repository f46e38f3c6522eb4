"""Counts keys at the end of partitions when somebody asks: slices are located on the loop, read and counted off it.

Nothing is kept and nothing is counted while nobody asks. An answer has a budget of records, bytes and time, which the
partitions of the request share; when it is used up, what was counted until then is the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from penstock.core.hot_keys.tally import Tally
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError
from penstock.storage.slices import LogSlice
from penstock.wire.record_types import CorruptBatch, DecompressionTooLarge

RECORDS_MAX = 1_000_000
BYTES_MAX = 128 * 1024 * 1024
TIME_MS_MAX = 10_000
SLICE_BYTES = 512 * 1024
BATCH_BYTES_MAX = 32 * 1024 * 1024
# Those who ask wait for each other; more than this are sent away.
WAITING_MAX = 4


class HotKeys:
    """Answers one request after the other."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def count(self, partitions: Sequence[Partition], records_max: int) -> list[Tally | ApiError]:
        """What is at the end of each partition, or why that cannot be told; raises THROTTLING_QUOTA_EXCEEDED."""
        if self._waiting >= WAITING_MAX:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "others are asking for hot keys; try again")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._count(partitions, records_max)
        finally:
            self._waiting -= 1

    async def _count(self, partitions: Sequence[Partition], records_max: int) -> list[Tally | ApiError]:
        deadline_ms = self._env.monotonic_ms() + TIME_MS_MAX
        shares = max(1, len(partitions))
        records = max(1, min(records_max, RECORDS_MAX) // shares)
        found: list[Tally | ApiError] = []
        for partition in partitions:
            try:
                found.append(await self._tally(partition, records, BYTES_MAX // shares, deadline_ms))
            except ApiError as error:
                found.append(error)
            except (CorruptBatch, DecompressionTooLarge, StorageError) as error:
                found.append(ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition.name} cannot be read: {error}"))
        return found

    async def _tally(self, partition: Partition, records: int, size_bytes: int, deadline_ms: int) -> Tally:
        log, tally = partition.log, Tally()
        end_offset = partition.high_watermark
        held = max(1, log.end_offset - log.start_offset)
        # Records are of about the same size, so that the last of them fit.
        records = max(1, min(records, size_bytes * held // max(1, log.size_bytes)))
        offset = tally.first_offset = tally.next_offset = max(log.start_offset, end_offset - records)
        left_bytes = size_bytes
        while offset < end_offset and left_bytes > 0 and self._env.monotonic_ms() < deadline_ms:
            piece = partition.read(offset, SLICE_BYTES, committed_only=False, minimum_one_batch=True)
            if not piece.size:
                break
            offset = await self._env.run_blocking(partial(_add, tally, piece, offset))
            tally.next_offset = offset
            left_bytes -= piece.size
        return tally


def _add(tally: Tally, piece: LogSlice, first_offset: int) -> int:
    return tally.add(piece.read(), first_offset, BATCH_BYTES_MAX)
