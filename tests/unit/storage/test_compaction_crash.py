"""A crash or a power cut at any point of a cleaning leaves the old records or the new ones, whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from compaction_support import clean, make_job, pairs, put
from log_support import NOW_MS, LogMaker

from penstock.storage.compaction.clean import Compaction, CompactionJob
from penstock.storage.files import OsFile, OsFilesystem
from penstock.storage.log import Log
from penstock.wire.record_types import Buffer

SUBSETS_TRIED = 40

Pairs = list[tuple[int, bytes | None, bytes | None]]


class Crash(Exception):
    """The process is gone."""


class CrashingFilesystem(OsFilesystem):
    """The real disk until `operations_left` changes have been made; the next one never happens."""

    def __init__(self) -> None:
        self.operations_left = 10**9
        self.operations = 0

    def step(self) -> None:
        self.operations += 1
        if self.operations_left == 0:
            raise Crash
        self.operations_left -= 1

    def write_file(self, path: Path, data: Buffer) -> OsFile:
        self.step()
        return super().write_file(path, data)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.step()
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self.step()
        super().sync_directory(path)


def fill(log: Log) -> None:
    """Four finished segments that a cleaning makes one, and a newest one."""
    for number in range(24):
        key = b"k%d" % (number % 5)
        put(
            log,
            (key, b"v%d" % number),
            (b"t%d" % (number % 3), None),
            producer_id=4,
            producer_epoch=0,
            base_sequence=number * 2,
        )
        if number % 5 == 4:
            log.roll(NOW_MS)


def job_of(log: Log) -> CompactionJob:
    return make_job(log, segment_bytes=100_000)


def check_whole(logs: LogMaker, log: Log, old: Pairs, new: Pairs) -> Pairs:
    """The log is the old or the new one, goes on, and is the same after another crash."""
    found = pairs(log)
    assert found in (old, new)
    assert logs.files(".swap") == logs.files(".cleaned") == logs.files(".deleted") == []
    entry = log.producers.get(4)
    assert entry is not None
    assert entry.last_sequence == 47
    end_offset = log.end_offset
    put(log, (b"k0", b"goes on"))
    log = logs.crash(log)
    assert pairs(log) == [*found, (end_offset, b"k0", b"goes on")]
    return found


def test_a_crash_before_any_change_on_disk(tmp_path: Path) -> None:
    reference = LogMaker(tmp_path / "reference")
    log = reference.open()
    fill(log)
    old = pairs(log)
    clean(log, job_of(log))
    new = pairs(log)
    assert len(new) < len(old)
    outcomes = []
    for operations in range(1000):
        disk = CrashingFilesystem()
        logs = LogMaker(tmp_path / str(operations), disk)
        log = logs.open()
        fill(log)
        log.flush()
        disk.operations_left = operations
        try:
            # The cleaner's own writes count too.
            for cleaned in Compaction(job_of(log), disk, lambda _: None).run():
                swap = log.begin_swap(cleaned, log.generation)
                assert swap is not None
                swap.sync()
                log.apply_swap(swap, NOW_MS)
                swap.sync()
                log.finish_swap(swap)
            finished = True
        except Crash:
            finished = False
        logs.filesystem = OsFilesystem()
        found = check_whole(logs, logs.crash(log), old, new)
        outcomes.append(found == new)
        if finished:
            break
    # Once the swap is decided, every later crash ends with the new log.
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) >= 4
    assert outcomes.count(True) >= 15


def test_an_index_without_its_log_does_not_replace_the_right_one(logs: LogMaker) -> None:
    log = logs.open()
    fill(log)
    log.flush()
    index = logs.directory / "00000000000000000000.index"
    before = index.read_bytes()
    assert before
    index.with_name(index.name + ".swap").write_bytes(before[8:])
    log = logs.crash(log)
    assert index.read_bytes() == before
    assert logs.files(".swap") == []


class RecordingFilesystem(OsFilesystem):
    """Notes renames, and puts a copy of the directory aside at each sync: what is durable, and what is under way."""

    def __init__(self, copies: Path) -> None:
        self.copies = copies
        self.phases: list[tuple[Path, list[tuple[str, str]]]] = []
        self.recording = False

    def begin(self, path: Path) -> None:
        self.recording = True
        copy = self.copies / str(len(self.phases))
        shutil.copytree(path, copy)
        self.phases.append((copy, []))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if self.recording:
            self.phases[-1][1].append((source.name, target.name))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if self.recording:
            self.begin(path)


def subsets(renames: list[tuple[str, str]], random: Random) -> Iterator[list[tuple[str, str]]]:
    """All subsets where they are few, else some of them."""
    if 2 ** len(renames) <= SUBSETS_TRIED:
        for bits in range(2 ** len(renames)):
            yield [rename for number, rename in enumerate(renames) if bits >> number & 1]
        return
    for _ in range(SUBSETS_TRIED):
        yield [rename for rename in renames if random.random() < 0.5]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_power_cut_that_keeps_only_some_of_the_unsynced_renames(tmp_path: Path, seed: int) -> None:
    disk = RecordingFilesystem(tmp_path / "copies")
    logs = LogMaker(tmp_path / "log", disk)
    log = logs.open()
    fill(log)
    log.flush()
    old = pairs(log)
    job = job_of(log)
    disk.begin(logs.directory)
    clean(log, job)
    new = pairs(log)
    disk.recording = False
    random = Random(seed)
    decided = []
    for number, (copy, renames) in enumerate(disk.phases):
        for subset in subsets(renames, random):
            scratch = LogMaker(tmp_path / "scratch")
            shutil.copytree(copy, scratch.directory)
            for source, target in subset:
                # The cleaner's files are made after the first copy.
                if not (scratch.directory / source).exists():
                    shutil.copy(find_written(disk, source), scratch.directory / source)
                (scratch.directory / source).rename(scratch.directory / target)
            found = check_whole(scratch, scratch.open(recovery_point=log.end_offset), old, new)
            decided.append((number, found == new))
            shutil.rmtree(tmp_path / "scratch")
    assert len(disk.phases) == 3
    assert {is_new for number, is_new in decided if number == 0} == {True, False}
    assert {is_new for number, is_new in decided if number > 0} == {True}


def find_written(disk: RecordingFilesystem, name: str) -> Path:
    """A synced `.cleaned` file, which later copies have as `.swap`."""
    return disk.phases[1][0] / name.replace(".cleaned", ".swap")
