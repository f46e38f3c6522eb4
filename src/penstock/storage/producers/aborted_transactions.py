"""The aborted transactions of a whole log: one index file for each segment that has any.

An entry is written right after its marker and becomes durable with it, in the same sync. After an unclean shutdown the
indexes of segments that are read again are rebuilt from the markers in them (`rebuild`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Sequence

from penstock.storage.files import File
from penstock.storage.indexes import DamagedIndexError
from penstock.storage.names import TRANSACTION_INDEX_SUFFIX, file_name
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.producers.transaction_index import AbortedTransaction, TransactionIndex


class AbortedTransactions:
    """The aborted transactions that read_committed readers skip. Segments are identified by their base offsets."""

    __slots__ = ("_base_offsets", "_home", "_indexes")

    def __init__(self, home: PartitionFiles) -> None:
        self._home = home
        # Only segments that have aborted transactions are in here.
        self._indexes: dict[int, TransactionIndex] = {}
        self._base_offsets: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._indexes.values()))

    def load(self, base_offsets: Iterable[int]) -> list[int]:
        """Read the indexes of segments; returns those whose file is damaged and that must be rebuilt."""
        damaged = []
        names = self._home.names()
        for base_offset in base_offsets:
            name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
            if not names.get(name):
                continue
            try:
                self._put(base_offset, TransactionIndex.from_bytes(self._home.read(name), base_offset))
            except DamagedIndexError:
                damaged.append(base_offset)
        return damaged

    def open(self, base_offset: int) -> File:
        """The index file of a segment that is about to get an abort marker; raises StorageError."""
        name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        return self._home.open(name) if base_offset in self._indexes else self._home.create(name)

    def note(self, base_offset: int, aborted: AbortedTransaction, file: File | None = None) -> None:
        """Add a transaction whose marker was just appended to a segment, to its opened index; raises StorageError."""
        file = self.open(base_offset) if file is None else file
        index = self._indexes.get(base_offset)
        if index is None:
            self._put(base_offset, index := TransactionIndex())
        file.append(index.append(aborted))
        self._home.await_sync(file_name(base_offset, TRANSACTION_INDEX_SUFFIX), file)

    def rebuild(self, base_offset: int, aborted: Sequence[AbortedTransaction], *, durable: bool = False) -> None:
        """Replace a segment's index by the result of reading the segment.

        Unless it is to be `durable` on return, the segment must be read once more after a crash before the next sync.
        """
        self.forget(base_offset)
        name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        if not aborted:
            self._home.unlink(name)
            return
        index = TransactionIndex()
        data = b"".join(index.append(one) for one in aborted)
        if durable:
            self._home.replace(name, data)
        else:
            self._home.write(name, data)
        self._put(base_offset, index)

    def read(self, base_offset: int, name: str) -> TransactionIndex | None:
        """The index of a cleaned segment, which is in the file `name`; None if it has none."""
        try:
            data = self._home.read(name)
        except FileNotFoundError:
            return None
        return TransactionIndex.from_bytes(data, base_offset)

    def adopt(self, base_offset: int, index: TransactionIndex | None) -> None:
        """A cleaned segment, which has this index, has replaced others."""
        if index is not None:
            self._put(base_offset, index)

    def overlapping(self, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `offset` on and below `upper_bound`, by their markers."""
        found: list[AbortedTransaction] = []
        # Markers before `offset` may be in its segment, and all relevant ones are in it or after it.
        for base_offset in self._base_offsets[max(0, bisect_right(self._base_offsets, offset) - 1) :]:
            overlap = self._indexes[base_offset].overlapping(offset, upper_bound)
            found += overlap.transactions
            if overlap.complete:
                break
        return found

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker is at or after an offset; segments from there on are forgotten whole."""
        for base_offset in self._base_offsets[::-1]:
            if base_offset >= offset:
                self.forget(base_offset)
                # A segment that begins here stays, empty: its old index must not be loaded again.
                self._home.unlink(file_name(base_offset, TRANSACTION_INDEX_SUFFIX))
                continue
            index = self._indexes[base_offset]
            assert base_offset < offset
            before = len(index)
            size = index.truncate(offset)
            if len(index) < before:
                name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
                file = self._home.open(name)
                file.truncate(size)
                self._home.await_sync(name, file)
            return

    def forget(self, base_offset: int) -> None:
        """A segment is gone, with its file."""
        if self._indexes.pop(base_offset, None) is not None:
            self._base_offsets.remove(base_offset)
            assert len(self._base_offsets) == len(self._indexes)

    def _put(self, base_offset: int, index: TransactionIndex) -> None:
        assert base_offset not in self._indexes, "a segment has one index"
        self._indexes[base_offset] = index
        insort(self._base_offsets, base_offset)
        assert len(self._base_offsets) == len(self._indexes)


def keep_entries(home: PartitionFiles, base_offsets: Iterable[int], markers: Collection[int]) -> bytes:
    """The index of a segment that replaces others: their entries whose markers it has kept."""
    kept = TransactionIndex()
    data = b""
    for base_offset in base_offsets:
        try:
            stored = home.read(file_name(base_offset, TRANSACTION_INDEX_SUFFIX))
        except FileNotFoundError:
            continue
        for entry in TransactionIndex.from_bytes(stored, base_offset).entries:
            if entry.last_offset in markers:
                data += kept.append(entry)
    return data
