"""A log's producer state: its current value, snapshots of it, and aborted transactions."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence

from penstock.core.replica.producer_state import EndMarker, ProducerEntry, ProducerState
from penstock.storage.files import File
from penstock.storage.names import SNAPSHOT_SUFFIX, file_name
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.producers.aborted_transactions import AbortedTransactions
from penstock.storage.producers.replay import aborted_transaction, replay_in_turns
from penstock.storage.producers.snapshot import (
    DamagedSnapshotError,
    encode_snapshot,
    is_worth_its_size,
    read_snapshot,
)
from penstock.storage.segment import Segment
from penstock.wire.records import BatchHeader

_CONTROL = 0x20


class ProducerHistory:
    """The producers of one log. `snapshots` are the offsets, in order, of the snapshots on disk."""

    __slots__ = ("_aborted", "_bytes_since", "_home", "_is_partial", "_producers", "_snapshots")

    def __init__(
        self, home: PartitionFiles, producers: ProducerState, aborted: AbortedTransactions, snapshots: list[int]
    ) -> None:
        self._home = home
        self._producers = producers
        self._aborted = aborted
        self._snapshots = snapshots
        # Of the log, in the segments that were rolled since the last snapshot.
        self._bytes_since = 0
        # Whether the state lacks batches at the end of the log, which `reload` has not read yet.
        self._is_partial = False

    def open_index(self, markers: Mapping[int, EndMarker], base_offset: int) -> File | None:
        """The open index of a segment that is about to get these markers, if any aborts; raises StorageError."""
        return self._aborted.open(base_offset) if any(marker.aborted for marker in markers.values()) else None

    def note(
        self,
        headers: Sequence[BatchHeader],
        markers: Mapping[int, EndMarker] | None,
        base_offset: int,
        end_offset: int,
        now_ms: int,
        index: File | None = None,
    ) -> None:
        """Add batches that were just appended to the segment at `base_offset`; all of them, even when it raises.

        Their markers may have opened the segment's `index`.

        Raises StorageError when an aborted transaction could not be written to its index.
        """
        producers = self._producers
        assert producers.end_offset <= headers[0][0], "batches are noted in the order of the log"
        assert not self._is_partial, "nothing is appended before all producers are known again"
        aborted = []
        for header in headers:
            if header[9] < 0:
                continue
            marker = markers.get(header[0]) if markers is not None else None
            if marker is not None:
                ended = aborted_transaction(producers.complete(header, marker, now_ms), producers)
                if ended is not None:
                    aborted.append(ended)
            elif not header[5] & _CONTROL:
                producers.update(header, now_ms)
        producers.end_offset = end_offset
        for one in aborted:
            self._aborted.note(base_offset, one, index)

    def rolled(self, size_bytes: int, offset: int, start_offset: int, *, is_tiered: bool) -> None:
        """A segment was finished at `offset`: store the state there, if the snapshot is worth its size.

        With many producers and small segments all snapshots together would be far larger than the log, and writing
        them take all of the time. What follows the last one is read from the log. A tiered log needs each of them.
        """
        self._bytes_since += size_bytes
        if is_tiered or is_worth_its_size(len(self._producers), self._bytes_since):
            self.take_snapshot(offset, start_offset)

    def take_snapshot(self, offset: int, start_offset: int) -> None:
        """Store the state as of `offset`, where the log ends now; the previous snapshot stays as a fallback.

        Does nothing if there is one already, or at the start of the log's first segment, nor where `reload` did not get
        to its end.
        """
        if self._is_partial or offset <= (self._snapshots[-1] if self._snapshots else start_offset):
            return
        self._home.write(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(self._producers.entries))
        self._snapshots.append(offset)
        self._bytes_since = 0

    def take_snapshot_at_start(self, offset: int) -> bool:
        """The segments before `offset` are about to be deleted: store the producers that have only been there.

        A producer is known until it expires, although its batches are deleted. The others are found again in what
        follows, also where a later snapshot cannot be used. Returns whether there was anything to store.
        """
        if self._is_partial or offset in self._snapshots:
            return False
        entries = [entry for entry in self._producers.entries if entry.last_offset < offset]
        if not entries:
            return False
        self._home.write(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(entries))
        insort(self._snapshots, offset)
        return True

    def reload(self, segments: Sequence[Segment], end_offset: int, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """The state as of the log's new end, in turns: the newest snapshot before it, and the batches since."""
        producers, self._is_partial = self._producers, True
        while self._snapshots:
            snapshot = self._snapshots[-1]
            name = file_name(snapshot, SNAPSHOT_SUFFIX)
            try:
                if snapshot <= end_offset:
                    entries = read_snapshot(self._home.read(name))
                    yield from producers.load_in_turns(entries, snapshot, now_ms, expiration_ms)
                    break
            except (DamagedSnapshotError, FileNotFoundError):
                pass
            self._home.unlink(name)
            self._snapshots.pop()
        else:
            producers.clear(segments[0].base_offset)
        yield from replay_in_turns(producers, segments, end_offset)
        assert producers.end_offset >= end_offset
        self._is_partial = False

    def clear(self, offset: int) -> None:
        """The log starts again at `offset` without producers."""
        for snapshot in self._snapshots:
            self._home.unlink(file_name(snapshot, SNAPSHOT_SUFFIX))
        self._snapshots.clear()
        self._producers.clear(offset)
        self._is_partial = False

    def adopt(self, offset: int, entries: Sequence[ProducerEntry], now_ms: int, expiration_ms: int) -> None:
        """The log continues at `offset`, where its producers were these; stores them as a snapshot."""
        self._producers.load(entries, offset, now_ms, expiration_ms)
        self._is_partial = False
        self._home.write(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(self._producers.entries))
        self._snapshots.append(offset)

    def take_over(self, producers: ProducerState, offset: int) -> None:
        """Continue with the producers of another log that ends at `offset` too; stores them as a snapshot."""
        self._home.write(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(producers.entries))
        if offset not in self._snapshots:
            self._snapshots.append(offset)
        self._producers, self._is_partial = producers, False

    def let_go(self, base_offset: int) -> list[str]:
        """A segment is removed; returns the name of its snapshot, if there is one."""
        if base_offset not in self._snapshots:
            return []
        self._snapshots.remove(base_offset)
        return [file_name(base_offset, SNAPSHOT_SUFFIX)]
