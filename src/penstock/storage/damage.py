"""Looks for damage in segments: whole batches are read again, and compared with their checksums."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from penstock.storage.files import CorruptLogError, File
from penstock.storage.scan import header_at
from penstock.storage.segment import Segment
from penstock.wire.kernel import scan_batches


class SegmentToCheck(NamedTuple):
    """The bytes of one segment that should be whole batches, as long as the log is of this generation."""

    segment: Segment
    generation: int
    size: int

    @property
    def path(self) -> Path:
        """Its log file, under its present name."""
        return self.segment.home.path / self.segment.name


def check_batches(file: File, position: int, end: int, size_max: int) -> int:
    """Check some batches from `position` (a batch's start), at most `size_max` bytes of them but at least one.

    Returns where the next one starts. Raises CorruptLogError at the first one that is damaged. Blocks, in any thread.
    """
    size = min(size_max, end - position)
    data = file.read(position, size)
    scan = scan_batches(data, 0, len(data), check_crc=True)
    if not scan.batches and scan.problem is None:
        # The batch is longer than that; its header has its length.
        size = header_at(file, position, end).size_bytes
        data = file.read(position, size)
        scan = scan_batches(data, 0, len(data), check_crc=True)
    if scan.problem is not None:
        raise CorruptLogError(file.path, position + scan.position, scan.problem)
    if not scan.batches:
        raise CorruptLogError(file.path, position, f"a batch of {size} bytes is cut short, only {len(data)} are left")
    return position + scan.position
