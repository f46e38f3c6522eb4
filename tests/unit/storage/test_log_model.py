"""Random histories of a log against the simplest thing that behaves the same: a list of records."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_support import NOW_MS, LogMaker, Stored, headers_of, make_batch, read_all

from penstock.core.lifecycle.retention import RetentionPlan
from penstock.model.errors import ApiError
from penstock.storage.settings import LogSettings


class LogAgainstList(RuleBasedStateMachine):
    """`batches` is the list: (base offset, values, timestamp) of every batch that must be readable."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.logs = LogMaker(self.directory)
        self.batches: list[tuple[int, list[bytes], int]] = []
        self.start = self.end = self.durable = 0
        self.epoch = 0

    @initialize(segment_bytes=st.sampled_from([200, 700, 5000]), interval=st.sampled_from([0, 100, 4096]))
    def open(self, segment_bytes: int, interval: int) -> None:
        self.logs.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.log = self.logs.open()

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @rule(
        sets=st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), min_size=1, max_size=3),
        gap=st.sampled_from([0, 0, 0, 1, 9]),
        timestamp=st.integers(NOW_MS, NOW_MS + 1000),
        elect=st.booleans(),
    )
    def append(self, sets: list[list[bytes]], gap: int, timestamp: int, elect: bool) -> None:
        self.epoch += elect
        data = b""
        for values in sets:
            base_offset = self.end + gap
            data += make_batch(base_offset, values, timestamp=timestamp, epoch=self.epoch)
            self.batches.append((base_offset, values, timestamp))
            self.end = base_offset + len(values)
        self.log.append(headers_of(data), data, NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = self.end

    @rule()
    def rest(self) -> None:
        self.log.close_files()

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.log.close()
            self.durable = self.end
        else:
            self.log.close(clean=False)
        self.log = self.logs.open(clean=clean, recovery_point=self.durable, start_offset=self.start)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def tear(self, data: st.DataObject) -> None:
        """The process dies in mid-write: the newest file ends with part of a batch."""
        torn = make_batch(self.end, [b"never acknowledged"])
        path = self.logs.directory / self.log._active.name
        self.log.close(clean=False)
        with path.open("ab") as file:
            file.write(torn[: data.draw(st.integers(0, len(torn) - 1))])
        self.log = self.logs.open(recovery_point=self.durable, start_offset=self.start)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        changed = self.log.truncate_to(offset, NOW_MS)
        assert changed == (offset < self.end)
        self.batches = [each for each in self.batches if each[0] + len(each[1]) <= offset]
        if changed:
            # Where a segment is left without batches, the log ends where the segment starts.
            last_end = self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else 0
            assert last_end <= self.log.end_offset <= offset
            self.end = self.log.end_offset
        self.start = min(self.start, self.end)
        self.durable = min(self.durable, self.end)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_start_offset(self.start)

    @rule()
    def drop_oldest_segment(self) -> None:
        facts = self.log.segment_facts()
        if len(facts) > 1:
            self.log.delete_segments(RetentionPlan(frozenset({facts[0].base_offset}), facts[0].end_offset), NOW_MS)
            self.start = max(self.start, facts[0].end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(data=st.data(), size_max=st.integers(1, 1000))
    def read(self, data: st.DataObject, size_max: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        offset_max = data.draw(st.integers(offset, self.end))
        assert read_all(self.log, offset, size_max=size_max, offset_max=offset_max) == self.expected(offset, offset_max)

    @rule(timestamp=st.integers(NOW_MS - 1, NOW_MS + 1005))
    def find_time(self, timestamp: int) -> None:
        found = self.log.offset_for_timestamp(timestamp)
        expected = [
            (time + i, base + i)
            for base, values, time in self.batches
            for i in range(len(values))
            if time + i >= timestamp and base + i >= self.start
        ]
        assert (found and (found.timestamp, found.offset)) == (expected[0] if expected else None)

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(ApiError):
                self.log.read(offset, 100)

    def expected(self, offset: int, offset_max: int) -> list[Stored]:
        return [
            Stored(base + i, value)
            for base, values, _ in self.batches
            for i, value in enumerate(values)
            if base + i >= offset and base + len(values) <= offset_max
        ]

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            assert self.log.flushed_offset <= self.end
            assert self.log.epochs.latest <= self.epoch


LogAgainstList.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogAgainstList = LogAgainstList.TestCase
