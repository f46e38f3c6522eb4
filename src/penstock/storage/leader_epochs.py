"""Where each leader epoch of a partition starts, in Kafka's checkpoint file.

Followers and consumers use it to find where their log diverges from the leader's (OffsetForLeaderEpoch).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from penstock.storage.checkpoint import CheckpointError, parse_checkpoint, render_checkpoint

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """`epoch` begins with the record at `start_offset`."""

    epoch: int
    start_offset: int


class EndOffset(NamedTuple):
    """The end of an epoch; both are -1 when it is unknown."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log, oldest first. `latest` is -1 while there is none."""

    __slots__ = ("_entries", "latest")

    def __init__(self) -> None:
        self._entries: list[EpochEntry] = []
        self.latest = UNDEFINED_EPOCH

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` starts here; True when that changed something.

        An entry that contradicts the new one (a later epoch, or a start at or after it) was never committed and is
        removed.
        """
        assert epoch >= 0
        assert start_offset >= 0
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        assert not entries or entries[-1].epoch < epoch, "epochs only grow"
        assert not entries or entries[-1].start_offset < start_offset, "epochs don't overlap"
        entries.append(EpochEntry(epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EndOffset:
        """The largest known epoch up to the given one, and where the next one starts."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return EndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == entries[-1].epoch:
            return EndOffset(epoch, log_end_offset)
        slot = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if slot == 0:
            # Older than anything kept. Its data was deleted, so the follower may start where our log does.
            return EndOffset(epoch, entries[0].start_offset)
        assert entries[slot - 1].epoch <= epoch < entries[slot].epoch
        return EndOffset(entries[slot - 1].epoch, entries[slot].start_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote an offset, or -1."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that start at or after the log's new end; True when that changed something."""
        entries = self._entries
        count = len(entries)
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
        assert not entries or entries[-1].start_offset < end_offset, "no epoch begins past the log's end"
        return len(entries) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop epochs that end at or before the log's new start; the one that spans it now starts there."""
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and self._entries[0].start_offset == start_offset):
            return False
        assert self._entries[slot - 1].start_offset <= start_offset, "the epoch spans the log's start"
        self._entries[:slot] = [EpochEntry(self._entries[slot - 1].epoch, start_offset)]
        return True

    def clear(self) -> None:
        self._entries.clear()
        self.latest = UNDEFINED_EPOCH

    def to_bytes(self) -> bytes:
        return render_checkpoint([f"{entry.epoch} {entry.start_offset}" for entry in self._entries])

    @classmethod
    def from_bytes(cls, data: bytes) -> LeaderEpochs:
        """Read the checkpoint file; raises CheckpointError when it is not one."""
        epochs = cls()
        for line in parse_checkpoint(data):
            parts = line.split()
            if len(parts) != 2 or not all(part.isdecimal() for part in parts):
                raise CheckpointError(f"{line!r} is not an epoch and its start offset")
            epochs.assign(int(parts[0]), int(parts[1]))
        return epochs
