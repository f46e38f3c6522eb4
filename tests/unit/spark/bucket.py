"""A bucket in memory, with segments as leaders copy them."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from penstock.storage.indexes import OffsetIndex
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producers.transaction_index import AbortedTransaction, TransactionIndex
from penstock.storage.tier.layout import (
    EPOCHS,
    INDEX,
    LOG,
    TRANSACTION_INDEX,
    Manifest,
    PartitionLocation,
    StoredObject,
)
from penstock.wire.kernel import scan_batches
from penstock.wire.records import ControlType, Record, build_batch, control_key, patch
from support.memory_store import MemoryStore

PLACE = PartitionLocation("cluster", "orders", b"t" * 16, 0)
# Records in a batch, and bytes between entries of the offset index.
BATCH = 3
INDEX_INTERVAL = 400


def batch(offset: int, count: int, epoch: int, producer: int = -1) -> bytes:
    """A batch of records whose values contain their offset and epoch."""
    values = [b"%d in %d" % (offset + number, epoch) for number in range(count)]
    records = [Record(number, 1000 + offset + number, None, value) for number, value in enumerate(values)]
    more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if producer >= 0 else {}
    data = bytearray(build_batch(records, transactional=producer >= 0, **more))
    patch(data, 0, offset, epoch)
    return bytes(data)


def marker(offset: int, producer: int, kind: ControlType, epoch: int = 0) -> bytes:
    """The end of a transaction."""
    records = [Record(0, 1000, control_key(kind), b"\0\0\0\0\0\0")]
    data = bytearray(build_batch(records, producer_id=producer, producer_epoch=0, transactional=True, control=True))
    patch(data, 0, offset, epoch)
    return bytes(data)


class Bucket:
    """A store with segments of one partition."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._count = 0

    def add(self, start: int, end: int, lineage: Sequence[tuple[int, int]] = ((0, 0),), **more: bytes) -> Manifest:
        """Copy the offsets from `start` to before `end`, as the leader with these epochs has them."""
        log = b""
        for offset in range(start, end, BATCH):
            epoch = [one for one, first in lineage if first <= offset][-1]
            log += batch(offset, min(BATCH, end - offset), epoch)
        return self.put(start, end, log, lineage, **more)

    def put(
        self, start: int, end: int, log: bytes, lineage: Sequence[tuple[int, int]] = ((0, 0),), **more: bytes
    ) -> Manifest:
        """Copy a segment with these bytes."""
        self._count += 1
        history = LeaderEpochs()
        for epoch, first in lineage:
            if first < end:
                history.assign(epoch, first)
        own = LeaderEpochs.from_bytes(history.to_bytes())
        own.truncate_from_start(start)
        contents = {LOG: log, INDEX: index_of(log, start), EPOCHS: history.to_bytes(), **more}
        stored = {kind: StoredObject(len(content), crc32c(content)) for kind, content in contents.items()}
        segment_id = bytes([self._count]) * 16
        manifest = Manifest(PLACE, segment_id, start, end - 1, 999 + end, own.entries, 1, 0, stored)
        for kind, content in contents.items():
            self.store.objects[PLACE.object(start, segment_id, kind)] = content
        self.store.objects[PLACE.manifest(start, segment_id)] = manifest.to_bytes()
        return manifest

    def lose(self, manifest: Manifest, kind: str) -> None:
        """Delete an object of a segment."""
        del self.store.objects[PLACE.object(manifest.start_offset, manifest.segment_id, kind)]


def index_of(log: bytes, start: int) -> bytes:
    """The offset index of a segment."""
    index, indexed = OffsetIndex(), 0
    for position, _, _, last_offset, _ in scan_batches(log, 0, len(log)).batches:
        if position - indexed >= INDEX_INTERVAL:
            index.append(last_offset - start, position)
            indexed = position
    return index.to_bytes()


def aborted_index(*entries: tuple[int, int, int]) -> dict[str, bytes]:
    """The index of aborted transactions: producer, first and last offset of each."""
    index = TransactionIndex()
    for producer, first, last in entries:
        index.append(AbortedTransaction(producer, first, last, last + 1))
    return {TRANSACTION_INDEX: index.to_bytes()}
