"""What compaction leaves of a single batch: all of it, some records, an empty batch, or nothing.

A batch keeps its range of offsets, its codec, its producer and its sequences, whatever happens to its records. A
tombstone stays for `delete.retention.ms` after the first cleaning that finds it to be its key's latest record, so that
lagging consumers see the deletion; that time is stored in the batch itself, as its delete horizon, which replaces the
base timestamp. Markers of transactions without remaining records are treated the same way.

A batch without records stays as long as it is its producer's last, since it holds the last sequence, or where it marks
the end of its segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress as select

from penstock.storage.compaction.transactions import OpenTransactions
from penstock.wire.compression import compress
from penstock.wire.kernel import OffsetMap, filter_records, walk_keys
from penstock.wire.record_types import Buffer
from penstock.wire.records import BatchHeader, TimestampType, assemble, read_body

# A stored batch was within the size limits when it was appended; this bounds what a damaged one can decompress to.
DECOMPRESSED_BYTES_MAX = 2**30
NO_TIMESTAMP = -1
NO_OFFSET = -1

_DELETE_HORIZON = 0x40
# What an emptied batch keeps of its attributes: who set the timestamps, transactional, control.
_KEPT_WHEN_EMPTY = 0x38


class BatchCleaner:
    """Cleans batches one after the other. `latest_horizon_ms` is when the last of the kept tombstones may be removed.

    `producers` has, for each active producer, the last offset it wrote (or -1) and its epoch.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: OpenTransactions,
        producers: Mapping[int, tuple[int, int]],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.latest_horizon_ms = NO_TIMESTAMP

    def clean(self, header: BatchHeader, batch: memoryview, *, keep_shell: bool) -> Buffer | None:
        """The batch to write, the same object if nothing changes; None if it is removed.

        `keep_shell` keeps an empty batch if all records are removed.
        """
        horizon_ms = header.delete_horizon
        has_expired = horizon_ms is not None and horizon_ms <= self._now_ms
        if header.is_control:
            wants_horizon = self._transactions.is_spent(header, batch)
            body = read_body(batch, 0, header, DECOMPRESSED_BYTES_MAX)
            mask = bytes(header.records_count) if wants_horizon and has_expired else b"\x01" * header.records_count
        elif self._transactions.is_aborted(header):
            return self._shell(header, keep_shell)
        else:
            body = read_body(batch, 0, header, DECOMPRESSED_BYTES_MAX)
            mask = self._offsets.keep(body, header.records_count, header.base_offset, drop_tombstones=has_expired)
            wants_horizon = False
        kept = mask.count(1)
        if kept == 0:
            return self._shell(header, keep_shell)
        is_whole = kept == header.records_count
        if is_whole and horizon_ms is not None:
            self._note_horizon(horizon_ms)
            return batch
        keys = walk_keys(body, header.records_count)
        wants_horizon |= not header.is_control and any(select(keys.tombstones, mask))
        if is_whole and not wants_horizon:
            return batch
        return self._rebuild(header, body, mask, keys.timestamp_deltas, wants_horizon)

    def _rebuild(
        self, header: BatchHeader, body: Buffer, mask: bytes, timestamp_deltas: memoryview, wants_horizon: bool
    ) -> bytes:
        """A batch of only the records in `mask`."""
        shift = 0
        fields = header._replace(records_count=mask.count(1))
        assert 0 < fields.records_count <= header.records_count, "a batch without records is a shell"
        assert len(mask) == header.records_count, "each record is kept or not"
        if header.timestamp_type is TimestampType.CREATE:
            newest = header.base_timestamp + max(select(timestamp_deltas, mask))
            fields = fields._replace(max_timestamp=newest)
        if header.delete_horizon is not None:
            self._note_horizon(header.delete_horizon)
        elif wants_horizon:
            shift = header.base_timestamp - self._horizon_ms
            attributes = header.attributes | _DELETE_HORIZON
            fields = fields._replace(base_timestamp=self._horizon_ms, attributes=attributes)
            self._note_horizon(self._horizon_ms)
        records = filter_records(body, mask, shift)
        return assemble(fields, compress(header.compression, records))

    def _note_horizon(self, horizon_ms: int) -> None:
        if horizon_ms > self._now_ms:
            self.latest_horizon_ms = max(self.latest_horizon_ms, horizon_ms)

    def _shell(self, header: BatchHeader, keep: bool) -> bytes | None:
        if not keep and not self._is_last_of_producer(header):
            return None
        attributes = header.attributes & _KEPT_WHEN_EMPTY
        return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0), b"")

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch has a producer's last sequence, or its epoch if it has written nothing in that."""
        if header.producer_id < 0 or header.producer_id not in self._producers:
            return False
        last_offset, epoch = self._producers[header.producer_id]
        if last_offset != NO_OFFSET:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch
