"""Random histories of a compacted log against a dictionary: appends, deletions, cleanings, crashes, starts.

What must hold after every step:
- what is read is part of what was appended, unchanged and in the order of offsets;
- the latest record of each key is there, unless it is a tombstone that two cleanings have met, the second at least
  `delete.retention.ms` after the first;
- after a cleaning, the part that it covers has no key twice and no tombstone whose time has come.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from compaction_support import DELETE_RETENTION_MS, batches, make_job, put, records
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_support import NOW_MS, LogMaker

from penstock.storage.compaction.clean import Compaction
from penstock.storage.files import OsFilesystem
from penstock.storage.settings import LogSettings
from penstock.wire.records import Compression, Record

KEYS = [b"a", b"b", b"c", b"d", b"e"]
STEPS = ["cleaned", "begun", "synced", "applied", "synced again", "finished"]

pairs = st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"1", b"2", b"x" * 40]))


class CompactedLogAgainstDictionary(RuleBasedStateMachine):
    """`history` is every record ever appended, `attempts` the end and time of every cleaning that was begun."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.logs = LogMaker(self.directory)
        self.history: list[Record] = []
        self.attempts: list[tuple[int, int]] = []
        self.first_dirty = self.durable = 0
        self.now_ms = NOW_MS

    @initialize(segment_bytes=st.sampled_from([150, 400, 2000]), interval=st.sampled_from([0, 100]))
    def open(self, segment_bytes: int, interval: int) -> None:
        self.logs.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.log = self.logs.open()

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @rule(batch=st.lists(pairs, min_size=1, max_size=5), compression=st.sampled_from([0, Compression.LZ4]))
    def append(self, batch: list[tuple[bytes, bytes | None]], compression: int) -> None:
        base_offset = put(self.log, *batch, timestamp=self.now_ms, compression=compression)
        self.history += [Record(base_offset + i, self.now_ms + i, key, value) for i, (key, value) in enumerate(batch)]

    @rule(passed_ms=st.sampled_from([1, DELETE_RETENTION_MS // 2, DELETE_RETENTION_MS]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(map_bytes=st.sampled_from([32 * 24, 1 << 16]), crash_after=st.sampled_from([*STEPS, None, None, None, None]))
    def compact(self, map_bytes: int, crash_after: str | None) -> None:
        job = make_job(self.log, self.first_dirty, now_ms=self.now_ms, map_bytes=map_bytes)
        if not job.segments:
            return
        self.attempts.append((job.segments[-1].end_offset, self.now_ms))
        compaction = Compaction(job, OsFilesystem(), lambda _: None)
        for cleaned in compaction.run():
            for step in STEPS:
                if step == "begun":
                    swap = self.log.begin_swap(cleaned, self.log.generation)
                    assert swap is not None
                elif step.startswith("synced"):
                    swap.sync()
                elif step == "applied":
                    assert self.log.apply_swap(swap, self.now_ms)
                elif step == "finished":
                    self.log.finish_swap(swap)
                if step == crash_after:
                    self.reopen(clean=False)
                    return
        self.first_dirty = compaction.report.end_offset
        self.check_clean(self.first_dirty, compaction.report.latest_horizon_ms)

    def check_clean(self, end_offset: int, latest_horizon_ms: int) -> None:
        keys = [record.key for record in records(self.log) if record.offset < end_offset]
        assert len(keys) == len(set(keys))
        horizons = []
        for header, found in batches(self.log):
            if header.base_offset < end_offset and any(record.value is None for record in found):
                assert header.delete_horizon is not None
                assert header.delete_horizon > self.now_ms
                horizons.append(header.delete_horizon)
        assert latest_horizon_ms >= max(horizons, default=-1)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.log = self.logs.restart(self.log) if clean else self.logs.crash(self.log)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def reap(self) -> None:
        self.log.reap(self.now_ms + 10**6)

    @rule(data=st.data())
    def read_from(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.log.end_offset))
        from_there = [record for record in records(self.log, offset) if record.offset >= offset]
        assert from_there == [record for record in records(self.log) if record.offset >= offset]

    @rule(timestamp=st.integers(NOW_MS, NOW_MS + 4 * DELETE_RETENTION_MS))
    def find_time(self, timestamp: int) -> None:
        found = self.log.offset_for_timestamp(timestamp)
        expected = next((record.offset for record in records(self.log) if record.timestamp >= timestamp), None)
        assert (found and found.offset) == expected

    def may_be_gone(self, tombstone: Record) -> bool:
        times = [now_ms for end_offset, now_ms in self.attempts if end_offset > tombstone.offset]
        return bool(times) and max(times) >= min(times) + DELETE_RETENTION_MS

    @invariant()
    def nothing_is_lost_changed_or_reordered(self) -> None:
        if not hasattr(self, "log"):
            return
        found = records(self.log)
        by_offset = {record.offset: record for record in self.history}
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert all(by_offset[record.offset] == record for record in found)
        offsets = {record.offset for record in found}
        latest = {record.key: record for record in self.history}
        for record in latest.values():
            assert record.offset in offsets or (record.value is None and self.may_be_gone(record))
        assert self.log.end_offset == len(self.history)


CompactedLogAgainstDictionary.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCompactedLogAgainstDictionary = CompactedLogAgainstDictionary.TestCase
