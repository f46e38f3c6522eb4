"""Producer snapshots, `<offset>.snapshot`: the state of producers when the log ended at that offset.

    version int16 = 1 · crc uint32 · count int32 · entries

The CRC-32C covers everything after itself. An entry keeps only the producer's last batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from crc32c import crc32c

from penstock.core.replica.producer_state import (
    NO_OFFSET,
    AppendedBatch,
    ProducerEntry,
    first_sequence_of,
)

_VERSION = 1
_HEAD = struct.Struct(">hIi")
# Producer id and epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's start.
_ENTRY = struct.Struct(">qhiqiqiq")
_SUMMED_FROM = 6
# A snapshot of this size is taken whenever a segment is rolled.
_SMALL_BYTES = 64 * 1024


class DamagedSnapshotError(Exception):
    """An incomplete snapshot; an older one, or the log itself, must be used instead."""


def is_worth_its_size(count: int, log_bytes: int) -> bool:
    """Whether to store the state of so many producers, or leave it to be found in what the log has got since."""
    return count * _ENTRY.size <= max(_SMALL_BYTES, log_bytes)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.batches[-1].last_offset - entry.batches[-1].base_offset if entry.batches else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in entries
    ]
    body = b"".join(packed)
    crc = crc32c(_HEAD.pack(0, 0, len(packed))[_SUMMED_FROM:] + body)
    return _HEAD.pack(_VERSION, crc, len(packed)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Read a snapshot file; raises DamagedSnapshotError if its checksum does not match."""
    return list(read_snapshot(data))


def read_snapshot(data: bytes) -> Iterator[ProducerEntry]:
    """As `decode_snapshot`, each entry when it is taken; an error is raised at once."""
    if len(data) < _HEAD.size:
        raise DamagedSnapshotError(f"only {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise DamagedSnapshotError(f"unknown version {version}")
    if crc32c(memoryview(data)[_SUMMED_FROM:]) != crc:
        raise DamagedSnapshotError("its checksum does not match")
    if count * _ENTRY.size != len(data) - _HEAD.size:
        raise DamagedSnapshotError(f"{count} entries announced in {len(data)} bytes")
    return map(_entry, _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]))


def _entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = fields
    batches: tuple[AppendedBatch, ...] = ()
    if last_offset >= 0:
        first_sequence = first_sequence_of(last_sequence, delta) if last_sequence >= 0 else last_sequence
        batches = (AppendedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp),)
    return ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, max(transaction, NO_OFFSET), batches)
