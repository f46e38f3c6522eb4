"""Truncations that are interrupted anywhere: by kill -9, or by a power failure; and what a tiered log may delete."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.core.lifecycle.retention import RetentionSettings, plan_local_retention
from penstock.core.replica.producer_state import AppendedBatch, ProducerEntry
from penstock.storage.files import StorageError
from penstock.storage.leader_epochs import EpochEntry, LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.names import LEADER_EPOCH_CHECKPOINT
from penstock.storage.segment_copy import TierHistory
from penstock.storage.settings import LogSettings
from penstock.wire.records import Record, build_batch, read_header, split_batches
from sim.disk import SimDisk, SimFilesystem
from sim.scheduler import SimCrash

NOW_MS = 1_000
SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=100)
TIERED = LogSettings(segment_bytes=600, index_interval_bytes=100, tiered=True)
PATH = Path("/data/t-0")
# More than any of these truncations has operations.
OPERATIONS = range(80)
HISTORY = TierHistory(
    (EpochEntry(0, 0), EpochEntry(4, 100)),
    (ProducerEntry(7, 1, last_timestamp=NOW_MS, batches=(AppendedBatch(5, 5, 199, 199, NOW_MS),)),),
)


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        record = Record(log.end_offset, NOW_MS, None, b"x" * 20)
        data = bytearray(build_batch([record], base_offset=log.end_offset, leader_epoch=0))
        log.append((read_header(data),), data, NOW_MS)


def offsets(log: Log) -> list[int]:
    found: list[int] = []
    at = log.local_start_offset
    while at < log.end_offset and (data := log.read(at, 1 << 20).read()):
        for _, header in split_batches(data, 1 << 20):
            found += range(header.base_offset, header.next_offset)
            at = header.next_offset
    return found


def interrupted(
    work: Callable[[Log], object], settings: LogSettings, *, loses_power: bool
) -> Iterator[tuple[Log, int]]:
    """The logs that a start finds after `work` was interrupted at each of its operations, and the former end."""
    for crash_at in OPERATIONS:
        for seed in range(4 if loses_power else 1):
            disk = SimDisk()
            filesystem = SimFilesystem(disk, lambda: NOW_MS)
            log = Log.open(filesystem, PATH, settings, recovery_point=0, clean=True, now_ms=NOW_MS)
            fill(log, 40)
            log.flush()
            recovery_point = log.flushed_offset
            filesystem.crash_after = crash_at
            try:
                work(log)
            except SimCrash:
                pass
            else:
                return
            if loses_power:
                disk.lose_power(Random(seed))
            # The checkpoint is still the one from before: it is lowered between the steps, or after them.
            yield reopen(disk, settings, recovery_point, loses_power), recovery_point
    raise AssertionError("there are more operations than were interrupted")


def reopen(disk: SimDisk, settings: LogSettings, recovery_point: int, lost_power: bool) -> Log:
    filesystem = SimFilesystem(disk, lambda: NOW_MS)
    return Log.open(
        filesystem,
        PATH,
        settings,
        recovery_point=recovery_point,
        clean=False,
        now_ms=NOW_MS,
        lost_power=lost_power,
    )


@pytest.mark.parametrize("loses_power", [False, True])
def test_an_interrupted_truncation_over_several_segments_leaves_no_gap(loses_power: bool) -> None:
    count = 0
    for log, former_end in interrupted(lambda log: log.truncate_to(3, NOW_MS), SETTINGS, loses_power=loses_power):
        with contextlib.suppress(StorageError) if loses_power else contextlib.nullcontext():
            # Below a checkpoint that was not lowered yet, a torn batch counts as damage. It is no gap.
            assert offsets(log) == list(range(log.end_offset))
        assert 0 < log.end_offset <= former_end
        count += 1
    assert count > 10


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_log_continues_after_the_tier_with_its_epochs_and_producers_or_not_yet(
    loses_power: bool,
) -> None:
    found = set()
    work = lambda log: log.start_from_tier(200, 0, HISTORY, NOW_MS)  # noqa: E731
    for log, former_end in interrupted(work, TIERED, loses_power=loses_power):
        assert log.end_offset <= former_end or log.end_offset == 200
        if log.end_offset == 200:
            assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (4, 100)]
            assert [entry.producer_id for entry in log.producers.entries] == [7]
        found.add(log.end_offset == 200)
    assert found == {True, False}


def test_each_step_names_what_the_checkpoints_may_have() -> None:
    disk = SimDisk()
    log = Log.open(SimFilesystem(disk, lambda: NOW_MS), PATH, SETTINGS, recovery_point=0, clean=True, now_ms=NOW_MS)
    fill(log, 40)
    log.flush()
    last = log.segment_facts()[-1].base_offset
    steps = []
    for offset in log.truncation(3, NOW_MS):
        assert log.end_offset >= offset == 3
        log.flush()
        steps.append(log.segment_count)
    assert (steps, log.end_offset) == ([1, 1], 3)
    assert last > 3
    fill(log, 1)
    assert offsets(log) == [0, 1, 2, 3]


def test_a_tiered_log_keeps_what_was_deleted_until_its_start_is_durable() -> None:
    filesystem = SimFilesystem(SimDisk(), lambda: NOW_MS)
    log = Log.open(filesystem, PATH, TIERED, recovery_point=0, clean=True, now_ms=NOW_MS)
    fill(log, 60)
    log.flush()
    ends = [facts.end_offset for facts in log.segment_facts()]
    copied_offset, start_offset = ends[1] - 1, ends[4]
    log.advance_start_offset(start_offset)

    def delete() -> None:
        plan = plan_local_retention(
            log.segment_facts(),
            RetentionSettings(-1, 0),
            NOW_MS,
            high_watermark=60,
            log_start_offset=log.start_offset,
            copied_offset=copied_offset,
        )
        log.delete_segments(plan, NOW_MS)

    delete()
    assert log.segment_facts()[0].base_offset == copied_offset + 1, "the tier has what is before it"
    log.note_durable_start(start_offset)
    delete()
    assert log.segment_facts()[0].base_offset == start_offset


def test_a_tiered_log_keeps_epochs_until_its_start_is_durable() -> None:
    """Of records that only the tier has no batch here tells their epochs."""
    filesystem = SimFilesystem(SimDisk(), lambda: NOW_MS)
    log = Log.open(filesystem, PATH, TIERED, recovery_point=0, clean=True, now_ms=NOW_MS)
    log.assign_epoch(3, 0)
    fill(log, 10)
    log.assign_epoch(7, log.end_offset)
    fill(log, 10)
    before = log.epochs.entries
    assert [entry.epoch for entry in before][-2:] == [3, 7]
    log.advance_start_offset(15)
    log.flush()
    assert log.epochs.entries == before
    stored = LeaderEpochs.from_bytes(filesystem.read_file(PATH / LEADER_EPOCH_CHECKPOINT))
    assert stored.entries == before, "a restart finds the former start"
    log.note_durable_start(15)
    assert log.epochs.entries == ((7, 15),)
    log.flush()
    stored = LeaderEpochs.from_bytes(filesystem.read_file(PATH / LEADER_EPOCH_CHECKPOINT))
    assert stored.entries == ((7, 15),)


def test_segments_that_a_start_removed_do_not_return_behind_what_was_appended_since() -> None:
    """The next power failure brought them back: two segments had the same offsets."""
    for seed in range(20):
        disk = SimDisk()
        log = Log.open(SimFilesystem(disk, lambda: NOW_MS), PATH, SETTINGS, recovery_point=0, clean=True, now_ms=NOW_MS)
        fill(log, 40)
        log.flush()
        torn = log._segments[0].file
        torn.truncate(torn.size - 1)
        torn.sync()
        log = reopen(disk, SETTINGS, 0, lost_power=True)
        assert log.recovery.segments_removed > 1
        log.settings = LogSettings(segment_bytes=1 << 20)
        fill(log, 12)
        log._active.file.sync()
        disk.lose_power(Random(seed))
        log = reopen(disk, SETTINGS, 0, lost_power=True)
        assert log.segment_count == 1


@pytest.mark.parametrize("lost_power", [False, True])
@pytest.mark.parametrize("loses_more", [False, True])
def test_a_start_that_is_interrupted_while_it_cuts_the_log_leaves_no_gap(*, lost_power: bool, loses_more: bool) -> None:
    """Segments were removed from the oldest on, and the torn one was cut before."""
    cut_at = 0
    for crash_at in range(200):
        disk = SimDisk()
        log = Log.open(SimFilesystem(disk, lambda: NOW_MS), PATH, SETTINGS, recovery_point=0, clean=True, now_ms=NOW_MS)
        fill(log, 40)
        log.flush()
        torn = log._segments[1].file
        torn.truncate(torn.size - 1)
        torn.sync()
        cut_at = log._segments[2].base_offset - 1
        filesystem = SimFilesystem(disk, lambda: NOW_MS)
        filesystem.crash_after = crash_at
        try:
            Log.open(filesystem, PATH, SETTINGS, recovery_point=0, clean=False, now_ms=NOW_MS, lost_power=lost_power)
        except SimCrash:
            pass
        else:
            assert crash_at > 20
            return
        if loses_more:
            disk.lose_power(Random(crash_at))
        # By now the marker may be of this boot, and nothing shows that power was lost before.
        log = reopen(disk, SETTINGS, 0, lost_power=False)
        assert offsets(log) == list(range(cut_at))
    raise AssertionError("the start never ends")
