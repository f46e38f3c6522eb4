"""Compaction for tests: keyed records in, a whole cleaning done in this process, and what a consumer then reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from log_support import NOW_MS, PLAIN_MAX

from penstock.core.lifecycle.compaction import CompactionSettings, plan_compaction
from penstock.storage.compaction.clean import Compaction, CompactionJob, CompactionReport
from penstock.storage.compaction.swap import CleanedSegment
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log
from penstock.wire.records import (
    BatchHeader,
    Compression,
    Record,
    build_batch,
    read_header,
    read_records,
    split_batches,
)

SEED = bytes(range(16))
DELETE_RETENTION_MS = 1000
MAP_BYTES = 1 << 20

Pair = tuple[bytes | None, bytes | None]


def put(log: Log, *pairs: Pair, timestamp: int = NOW_MS, compression: int = Compression.NONE, **options: int) -> int:
    """Append one batch of keys and values, the records one millisecond apart; returns its base offset."""
    base_offset = log.end_offset
    records = [Record(base_offset + i, timestamp + i, key, value) for i, (key, value) in enumerate(pairs)]
    data = build_batch(records, base_offset=base_offset, leader_epoch=0, compression=compression, **options)  # type: ignore[arg-type]
    log.append([read_header(data)], data, NOW_MS)
    return base_offset


def batches(log: Log, start: int | None = None) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Every batch from an offset on, fetched the way a consumer does."""
    offset = log.start_offset if start is None else start
    while data := log.read(offset, 400).read():
        for position, header in split_batches(data, 2**31):
            yield header, read_records(data, PLAIN_MAX, position)
            assert header.last_offset >= offset
            offset = header.next_offset


def records(log: Log, start: int | None = None) -> list[Record]:
    return [record for _, found in batches(log, start) for record in found]


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


def make_job(
    log: Log,
    first_dirty: int = 0,
    *,
    now_ms: int = NOW_MS,
    map_bytes: int = MAP_BYTES,
    end_offset: int | None = None,
    segment_bytes: int | None = None,
) -> CompactionJob:
    facts = log.segment_facts()
    stable = log.end_offset if end_offset is None else end_offset
    plan = plan_compaction(facts, CompactionSettings(), now_ms, first_dirty=first_dirty, last_stable_offset=stable)
    return CompactionJob(
        directory=str(log.directory),
        segments=tuple(segment for segment in facts if segment.end_offset <= plan.end_offset),
        later_segments=tuple(segment for segment in facts if segment.end_offset > plan.end_offset),
        first_dirty_offset=first_dirty,
        now_ms=now_ms,
        delete_retention_ms=DELETE_RETENTION_MS,
        segment_bytes=segment_bytes or log.settings.segment_bytes,
        index_interval_bytes=log.settings.index_interval_bytes,
        max_message_bytes=1 << 20,
        map_bytes_max=map_bytes,
        seed=SEED,
        producers=tuple((each.producer_id, each.last_offset, each.producer_epoch) for each in log.producers.entries),
    )


def clean(log: Log, job: CompactionJob, between: Callable[[str], None] = lambda _: None) -> CompactionReport:
    """Do a job and swap its results in; `between` is called after each step with its name."""
    generation = log.generation
    compaction = Compaction(job, OsFilesystem(), lambda _: None)
    for cleaned in compaction.run():
        between("cleaned")
        swap_in(log, cleaned, generation, between)
    return compaction.report


def swap_in(
    log: Log, cleaned: CleanedSegment, generation: int, between: Callable[[str], None] = lambda _: None
) -> None:
    swap = log.begin_swap(cleaned, generation)
    assert swap is not None
    between("begun")
    swap.sync()
    assert log.apply_swap(swap, NOW_MS)
    between("applied")
    swap.sync()
    log.finish_swap(swap)
    between("finished")


def compact(log: Log, first_dirty: int = 0, **options: int) -> CompactionReport:
    """Clean all that can be cleaned of a log."""
    return clean(log, make_job(log, first_dirty, **options))


def latest(history: Sequence[Pair]) -> dict[bytes | None, bytes | None]:
    return dict(history)
