"""Looking records up by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from log_support import NOW_MS, LogMaker, append, headers_of

from penstock.storage import timestamps
from penstock.storage.scan import BatchPlace, walk
from penstock.wire.records import Compression, Record, TimestampType, build_batch


@pytest.mark.parametrize("codec", list(Compression))
def test_the_first_record_at_or_after_a_time(logs: LogMaker, codec: Compression) -> None:
    log = logs.open()
    for number in range(20):
        append(
            log, *(b"%d" % i * 30 for i in range(3)), timestamp=NOW_MS + 100 * number, epoch=number, compression=codec
        )
    for reopened in (False, True):
        log = logs.restart(log) if reopened else log
        assert log.offset_for_timestamp(0) == (NOW_MS, 0, 0)
        assert log.offset_for_timestamp(NOW_MS + 702) == (NOW_MS + 702, 23, 7)
        assert log.offset_for_timestamp(NOW_MS + 703) == (NOW_MS + 800, 24, 8)
        assert log.offset_for_timestamp(NOW_MS + 1902) == (NOW_MS + 1902, 59, 19)
        assert log.offset_for_timestamp(NOW_MS + 1903) is None


def test_timestamps_out_of_order(logs: LogMaker) -> None:
    log = logs.open()
    times = [50, 10, 70, 20, 60, 90, 30, 80, 40] * 5
    for time in times:
        append(log, b"x" * 100, timestamp=NOW_MS + time)
    for wanted in range(0, 100, 5):
        first = next((offset for offset, time in enumerate(times) if time >= wanted), None)
        found = log.offset_for_timestamp(NOW_MS + wanted)
        assert (found.offset if found else None) == first
    assert log.max_timestamp() == (NOW_MS + 90, 5, 0)


@pytest.mark.parametrize("seed", range(20))
def test_every_time_is_found_whatever_the_order_of_times_and_what_was_cut(logs: LogMaker, seed: int) -> None:
    random = Random(seed)
    log, times = logs.open(), list[int]()
    for _ in range(6):
        for _ in range(random.randrange(1, 25)):
            times.append(random.choice((times[-1] if times else 0, random.randrange(100), 50)))
            append(log, b"x" * random.randrange(150), timestamp=NOW_MS + times[-1])
        how = random.choice(("cut", "crash", "restart", "go on"))
        if how == "cut":
            del times[random.randrange(len(times)) + 1 :]
            log.truncate_to(len(times), NOW_MS)
        elif how != "go on":
            log = logs.crash(log) if how == "crash" else logs.restart(log)
        for wanted in range(-1, 101, 3):
            first = next((offset for offset, time in enumerate(times) if time >= wanted), None)
            found = log.offset_for_timestamp(NOW_MS + wanted)
            assert (found.offset if found else None) == first


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_few_batches_are_looked_at_for_a_time(logs: LogMaker, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two times all batches of the same time were read, on the event loop."""
    logs.settings = replace(logs.settings, segment_bytes=1 << 20)
    log = logs.open()
    for time in (0, 1):
        for _ in range(300):
            append(log, b"x" * 20, timestamp=NOW_MS + time)
    append(log, b"x", timestamp=NOW_MS + 2)
    log.max_timestamp()
    looked_at: list[int] = []

    def counted(*args: Any) -> Iterator[BatchPlace]:
        for place in walk(*args):
            looked_at.append(place.position)
            yield place

    monkeypatch.setattr(timestamps, "walk", counted)
    found = log.offset_for_timestamp(NOW_MS + wanted)
    assert found is not None
    assert found.offset == 300 * wanted
    assert len(looked_at) < 10


def test_deleted_records_are_not_found(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(10):
        append(log, b"a", b"b", timestamp=NOW_MS + 10 * number)
    log.advance_start_offset(5)
    assert log.offset_for_timestamp(0) == (NOW_MS + 21, 5, 0)


def test_an_empty_log_has_no_times(logs: LogMaker) -> None:
    log = logs.open()
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


def test_times_that_the_broker_set_hold_for_every_record_of_the_batch(logs: LogMaker) -> None:
    log = logs.open()
    records = [Record(i, NOW_MS + i, None, b"v") for i in range(3)]
    data = build_batch(records, leader_epoch=0, timestamp_type=TimestampType.LOG_APPEND)
    log.append(headers_of(data), data, NOW_MS)
    assert log.offset_for_timestamp(NOW_MS + 2) == (NOW_MS + 2, 0, 0)
    assert log.max_timestamp() == (NOW_MS + 2, 0, 0)
