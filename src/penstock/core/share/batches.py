"""Which batches of a log a share group may have, and what a member is sent of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from penstock.core.share.contract import Acquired
from penstock.wire.primitives import Buffer
from penstock.wire.records import BatchHeader, build_batch, read_header, read_records


class Aborted(NamedTuple):
    """An aborted transaction in a log."""

    producer_id: int
    first_offset: int
    last_offset: int


class Batches(NamedTuple):
    """Whole batches as they were read; `end` is the offset after them."""

    data: memoryview
    headers: tuple[BatchHeader, ...]
    end: int


def batches_in(data: Buffer, start: int) -> Batches:
    """The batches of some data that was read at `start`."""
    headers = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        headers.append(header)
        position += header.size_bytes
    return Batches(memoryview(data), tuple(headers), headers[-1].next_offset if headers else start)


def deliverable(headers: Iterable[BatchHeader], aborted: Sequence[Aborted]) -> list[tuple[int, int]]:
    """The first and last offsets of batches with records for members: no markers, and nothing that was aborted."""
    return [
        (header.base_offset, header.last_offset)
        for header in headers
        if not header.is_control and not (header.is_transactional and _is_aborted(header, aborted))
    ]


def _is_aborted(header: BatchHeader, aborted: Sequence[Aborted]) -> bool:
    return any(
        one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )


def thinned(data: Buffer, header: BatchHeader, offsets: Container[int], size_max: int) -> tuple[bytes, list[int]]:
    """A batch with only some of its records, and their offsets; as compaction leaves it, but for its range."""
    kept = [record for record in read_records(data, size_max) if record.offset in offsets]
    if not kept:
        return b"", []
    batch = build_batch(
        kept,
        base_offset=kept[0].offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        leader_epoch=header.partition_leader_epoch,
        transactional=header.is_transactional,
        timestamp_type=header.timestamp_type,
    )
    assert len(kept) <= header.records_count
    assert header.base_offset <= kept[0].offset <= kept[-1].offset <= header.last_offset
    return batch, [record.offset for record in kept]


def with_records(batches: Batches, acquired: Sequence[Acquired]) -> list[memoryview]:
    """The batches that hold acquired records, as few buffers as possible."""
    found: list[tuple[int, int]] = []
    position = 0
    waiting = iter(acquired)
    one = next(waiting, None)
    for header in batches.headers:
        end = position + header.size_bytes
        while one is not None and one.last < header.base_offset:
            one = next(waiting, None)
        if one is not None and one.first <= header.last_offset:
            if found and found[-1][1] == position:
                found[-1] = (found[-1][0], end)
            else:
                found.append((position, end))
        position = end
    return [batches.data[begin:end] for begin, end in found]
