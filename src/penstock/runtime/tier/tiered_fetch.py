"""Completes a consumer's fetch with what is only in object storage.

A partition whose records don't arrive in time is answered without any; the consumer fetches again, and finds in the
cache what has arrived since. A store that fails is KAFKA_STORAGE_ERROR, which clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from penstock.core.replica.fetch_session import Wanted
from penstock.model.errors import ApiError
from penstock.runtime.replication.fetch_rows import FetchedPartition, FetchKey
from penstock.runtime.replication.partition import Partition
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.wire.messages.fetch import AbortedTransaction

# So many partitions of one fetch are read at once; the others are answered without records.
PARTITIONS_MAX = 64


class TieredFetch:
    """`failed` is called with every error that a consumer gets."""

    def __init__(self, tier: RemoteLogs, failed: Callable[[int], None]) -> None:
        self._tier = tier
        self._failed = failed

    async def fill(
        self,
        found: Sequence[FetchedPartition],
        asked: Mapping[FetchKey, Wanted],
        find: Callable[[FetchKey], Partition],
        room: int,
        *,
        committed_only: bool,
    ) -> list[FetchedPartition]:
        """The rows, with what the tier has for those that need it; together they get no more than `room`."""
        rows = [*found]
        moved = [number for number, row in enumerate(found) if row.is_moved][:PARTITIONS_MAX]
        room -= sum(row.size_bytes for row in found)
        share = max(0, room // len(moved))
        if not share:
            moved = moved[:1]

        async def complete(number: int) -> None:
            row = found[number]
            rows[number] = await self._complete(row, asked[row.key], find, share, committed_only=committed_only)

        await asyncio.gather(*map(complete, moved))
        return rows

    async def _complete(
        self,
        row: FetchedPartition,
        wanted: Wanted,
        find: Callable[[FetchKey], Partition],
        share: int,
        *,
        committed_only: bool,
    ) -> FetchedPartition:
        try:
            partition = find(row.key)
            size_max = min(wanted.bytes_max, share)
            read = await self._tier.read(partition, wanted.offset, size_max, committed_only=committed_only)
        except ApiError as error:
            self._failed(error.code)
            return row._replace(data=row.data._replace(error_code=error.code))
        if read is None:
            return row
        partition.counters.read(len(read.data))
        aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in read.aborted]
        data = row.data._replace(records=read.data, aborted_transactions=aborted if committed_only else None)
        return FetchedPartition(row.key, data, len(read.data))
