"""Reads segments in object storage as columns: parts of them, of which the next are read ahead while one is decoded."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from penstock.spark.fetching import BATCH_BYTES_MAX, OffsetRange, RangeFetcher, runs
from penstock.spark.options import SourceOptions
from penstock.spark.shared import shared_client
from penstock.spark.tier.catalog import read_companion
from penstock.spark.tier.sections import Plan
from penstock.spark.tier.store import BlockingStore, shared_store
from penstock.storage.indexes import DamagedIndexError, OffsetIndex
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.tier.layout import INDEX, LOG, Manifest
from penstock.storage.tier.object_store import StoreError
from penstock.wire.columns import read_columns
from penstock.wire.kernel import scan_batches
from penstock.wire.record_types import Buffer, Columns
from penstock.wire.records import BatchHeader, TimestampType

logger = logging.getLogger("penstock.spark")

# The size of one request, and how many are in flight: this bounds memory, and hides the store's latency.
PIECE_BYTES = 4 * 1024 * 1024
PIECES_AHEAD = 2


class DamagedSegment(Exception):
    """A segment's bytes are not those that were written."""


class Decoded(NamedTuple):
    """Some records, and the offset to continue from."""

    columns: Columns
    timestamp_type: TimestampType
    next_offset: int


def read_plan(options: SourceOptions, plan: Plan) -> Iterator[tuple[Columns, TimestampType]]:
    """A range's records in order, wherever they are.

    A segment that was deleted since it was planned is read through the brokers, which have its records elsewhere, or
    report that they no longer exist.
    """
    skip = aborted_filter(plan.aborted)
    for section in plan.sections:
        position = section.start
        if section.segment is not None:
            assert options.tier is not None
            store = shared_store(options.tier)
            part = (section.segment, section.start, section.end)
            try:
                for decoded in read_segment(store, *part, headers=options.headers, skip=skip):
                    yield decoded.columns, decoded.timestamp_type
                    position = decoded.next_offset
                continue
            except FileNotFoundError:
                logger.warning(
                    "%s: a segment at offset %d was deleted meanwhile", plan.wanted.topic_partition, position
                )
        wanted = OffsetRange(plan.wanted.topic, plan.wanted.partition, position, section.end)
        yield from RangeFetcher(
            shared_client(options.connection),
            wanted,
            read_committed=options.read_committed,
            headers=options.headers,
            fail_on_data_loss=options.fail_on_data_loss,
            patience_seconds=options.poll_timeout_ms / 1000,
        ).columns()


def read_segment(
    store: BlockingStore,
    segment: Manifest,
    start: int,
    end: int,
    *,
    headers: bool,
    skip: Callable[[BatchHeader], bool],
) -> Iterator[Decoded]:
    """The records with start <= offset < end; batches that `skip` names are left out.

    Raises FileNotFoundError if the segment was deleted, StoreError if the store does not answer, DamagedSegment if a
    batch's CRC is wrong.
    """
    first, until = _byte_range(store, segment, start, end)
    path = segment.place.object(segment.start_offset, segment.segment_id, LOG)
    position, rest = first, b""
    for piece in _pieces(store, path, first, until):
        data = rest + piece if rest else piece
        scan = scan_batches(data, 0, len(data), check_crc=True)
        if scan.problem is not None:
            raise _damaged(path, position + scan.position, scan.problem)
        batches = memoryview(data)[: scan.position]
        for run in runs(batches):
            columns, next_offset = read_columns(
                batches[run.start : run.end], start, end, size_max=BATCH_BYTES_MAX, headers=headers, skip=skip
            )
            if columns.records_count:
                yield Decoded(columns, run.timestamp_type, next_offset)
        position += scan.position
        # A batch may span two pieces.
        rest = bytes(memoryview(data)[scan.position :])
    if rest:
        raise _damaged(path, position, "the batch is cut short")


def aborted_filter(aborted: Sequence[AbortedTransaction]) -> Callable[[BatchHeader], bool]:
    """Whether a batch belongs to one of these transactions."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in aborted:
        spans[one.producer_id].append((one.first_offset, one.last_offset))

    for each in spans.values():
        each.sort()

    def is_aborted(header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in spans:
            return False
        # A producer has one transaction at a time.
        own = spans[header.producer_id]
        slot = bisect_right(own, header.base_offset, key=lambda span: span[0])
        return slot > 0 and header.base_offset <= own[slot - 1][1]

    return is_aborted


def _byte_range(store: BlockingStore, segment: Manifest, start: int, end: int) -> tuple[int, int]:
    """The bytes of a segment that contain a range's batches, which may start a little later and end earlier."""
    size = segment.objects[LOG].size_bytes
    if start <= segment.start_offset and end > segment.end_offset:
        return 0, size
    data = store.run(read_companion(store.store, segment, INDEX))
    try:
        index = OffsetIndex.from_bytes(data, size)
    except DamagedIndexError as error:
        raise StoreError(f"the offset index of {segment.start_offset} is damaged: {error}") from error
    before = index.search(start - segment.start_offset)
    # The first batch known to reach the end, which is read whole.
    last = bisect_left(index.last_offsets, end - 1 - segment.start_offset)
    first = index.positions[before - 1] if before else 0
    return first, index.positions[last + 1] if last + 1 < len(index) else size


def _pieces(store: BlockingStore, path: str, first: int, until: int) -> Iterator[Buffer]:
    """The bytes of a range of an object, with some requests in flight ahead of the reader."""
    waiting: deque[tuple[int, Future[Buffer]]] = deque()
    position = first
    try:
        while position < until or waiting:
            while position < until and len(waiting) <= PIECES_AHEAD:
                size = min(PIECE_BYTES, until - position)
                waiting.append((size, store.submit(store.store.get_range(path, position, size))))
                position += size
            size, future = waiting.popleft()
            data = future.result()
            if len(data) != size:
                raise StoreError(f"{path} has {len(data)} of {size} bytes in a part of it")
            yield data
    finally:
        for _, future in waiting:
            future.cancel()


def _damaged(path: str, position: int, problem: str) -> DamagedSegment:
    return DamagedSegment(
        f"{path} is damaged at byte {position}: {problem}. `penstock tier verify` checks all segments; without the "
        "option tier.url records are read through the brokers"
    )
