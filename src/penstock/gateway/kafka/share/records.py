"""The records in a TakeShareRecords response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from penstock.gateway.kafka.records import ReadRecord, limited
from penstock.gateway.work.budgets import AT_ONCE_BYTES_MAX
from penstock.wire.messages.take_share_records import TakenPartition
from penstock.wire.primitives import Buffer
from penstock.wire.records import BatchError, Record, read_header, read_records

# The largest decompressed size of a batch; librdkafka, which reads everything else, has the same limit.
BATCH_BYTES_MAX = 64 * 1024 * 1024


class Taken(NamedTuple):
    """A record that was delivered to a member, for the `attempt`th time, and locked for it."""

    record: ReadRecord
    attempt: int
    lock_ms: int
    # The incarnation of the leader that delivered it.
    incarnation: int = -1


class TakenRows(NamedTuple):
    """The records acquired from one partition, and offsets and attempts of those that compaction removed."""

    records: list[Taken]
    gaps: list[tuple[int, int]]


async def taken_records(topic: str, row: TakenPartition, lock_ms: int, record_bytes_max: int) -> TakenRows:
    """The records acquired from one partition; one that cannot be decoded contains the reason."""
    data = row.records if isinstance(row.records, Buffer) else b""
    attempts = {
        offset: one.delivery_count
        for one in row.acquired_records
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    if len(data) > AT_ONCE_BYTES_MAX:
        found = await asyncio.to_thread(_decode, data, attempts)
    else:
        found = _decode(data, attempts)
    taken = []
    for offset, one in sorted(found.items()):
        if isinstance(one, str):
            record = ReadRecord(topic, row.partition_index, offset, 0, None, None, [], f"it cannot be decoded: {one}")
        else:
            record = limited(
                ReadRecord(topic, row.partition_index, offset, one.timestamp, one.key, one.value, [*one.headers]),
                record_bytes_max,
            )
        taken.append(Taken(record, attempts[offset], lock_ms, row.incarnation))
    return TakenRows(taken, [(offset, attempt) for offset, attempt in attempts.items() if offset not in found])


def _decode(data: Buffer, wanted: Mapping[int, int]) -> dict[int, Record | str]:
    """The wanted records of some batches by offset, or why one cannot be decoded."""
    found: dict[int, Record | str] = {}
    position = 0
    while position < len(data):
        header = read_header(data, position)
        try:
            records = read_records(data, BATCH_BYTES_MAX, position)
        except BatchError as error:
            inside = range(header.base_offset, header.last_offset + 1)
            found |= {offset: str(error) for offset in wanted if offset in inside}
        else:
            found |= {record.offset: record for record in records if record.offset in wanted}
        position += header.size_bytes
    return found
