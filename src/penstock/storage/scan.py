"""Walks the batches of a log file in chunks, so that memory does not depend on the size of the file or of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.storage.files import CorruptLogError, File
from penstock.wire.kernel import scan_batches
from penstock.wire.records import HEADER_SIZE, BatchHeader, CorruptBatch, UnsupportedMagic, read_header

# Enough for the bytes between two index entries, where most walks begin and end.
WALK_CHUNK_BYTES = 16 * 1024
# For walks that mostly end after a batch or two.
SMALL_WALK_BYTES = 4096
HEADERS_CHUNK_BYTES = 64 * 1024


class BatchPlace(NamedTuple):
    """Where a batch lies and what it spans."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def walk(file: File, position: int, end: int, chunk_bytes: int = WALK_CHUNK_BYTES) -> Iterator[BatchPlace]:
    """The batches from `position` (a batch's start) to `end`; bodies are skipped and checksums not looked at.

    Raises CorruptLogError where the bytes are not a batch, or one that runs past `end`.
    """
    while position < end:
        chunk = file.read(position, min(chunk_bytes, end - position))
        scan = scan_batches(chunk, 0, len(chunk))
        for at, size, base_offset, last_offset, max_timestamp in scan.batches:
            yield BatchPlace(position + at, size, base_offset, last_offset, max_timestamp)
        position += scan.position
        if scan.problem is not None:
            raise CorruptLogError(file.path, position, scan.problem)
        if position < end:
            # The next batch is longer than what was read of it; its header has its size.
            header = header_at(file, position, end)
            yield BatchPlace(position, header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp)
            position += header.size_bytes


def header_at(file: File, position: int, end: int) -> BatchHeader:
    """The header of the batch at `position`, which must lie whole before `end`; else CorruptLogError."""
    return header_in(file.read(position, HEADER_SIZE), 0, file, position, end)


def header_in(chunk: bytes, at: int, file: File, position: int, end: int) -> BatchHeader:
    """The header at `at` of a piece that was read from `position` of a file whose batches go up to `end`."""
    position += at
    try:
        header = read_header(chunk, at)
    except (CorruptBatch, UnsupportedMagic) as error:
        raise CorruptLogError(file.path, position, error.message) from error
    if header.last_offset_delta < 0:
        raise CorruptLogError(file.path, position, f"its last offset delta is {header.last_offset_delta}")
    if header.size_bytes > end - position:
        reason = f"a batch of {header.size_bytes} bytes is cut short, only {end - position} are left"
        raise CorruptLogError(file.path, position, reason)
    return header


def walk_headers(
    file: File, position: int, end: int, chunk_bytes: int = HEADERS_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Like `walk`, with the whole header of each batch."""
    while position < end:
        chunk = file.read(position, min(chunk_bytes, end - position))
        at = 0
        while at == 0 or at <= len(chunk) - HEADER_SIZE:
            header = header_in(chunk, at, file, position, end)
            yield position + at, header
            at += header.size_bytes
        position += at


def valid_prefix(data: bytes, file: File, position: int) -> bytes:
    """`data`, read from a file's `position`, up to the first damaged batch.

    Raises CorruptLogError when that is the very first one: damaged batches are never served.
    """
    scan = scan_batches(data, 0, len(data), check_crc=True)
    if scan.position == len(data):
        return data
    if scan.batches:
        return data[: scan.position]
    raise CorruptLogError(file.path, position, scan.problem or "the batch is cut short")
