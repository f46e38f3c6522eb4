from __future__ import annotations

import time

import click
import pytest

from penstock.cli.group.offset_spec import (
    Anchor,
    OffsetRange,
    PartitionOffsets,
    Point,
    parse_offset_range,
    parse_timestamp,
    resolve,
    timestamps_of,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
JANUARY_MS = 1_769_853_600_000  # 2026-01-31T10:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("-1h", NOW_MS - HOUR_MS),
        ("-1h30m", NOW_MS - HOUR_MS - 1_800_000),
        ("-2d", NOW_MS - 48 * HOUR_MS),
        ("-250ms", NOW_MS - 250),
        ("-1w", NOW_MS - 7 * 24 * HOUR_MS),
        ("1700000000000", 1_700_000_000_000),
        ("1700000000", 1_700_000_000_000),
        ("2026-01-31T10:00", JANUARY_MS),
        ("2026-01-31T10:00:00+00:00", JANUARY_MS),
        ("2026-01-31T12:00:00+02:00", JANUARY_MS),
        ("2026-01-31", JANUARY_MS - 10 * HOUR_MS),
    ],
)
def test_timestamp_is_read(text: str, expected: int) -> None:
    assert parse_timestamp(text, NOW_MS) == expected


def test_a_time_without_a_zone_is_utc_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_timestamp("2026-01-31T10:00", NOW_MS) == JANUARY_MS
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "tomorrow", "-1x", "-", "2026-13-01", "1h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not a time"):
        parse_timestamp(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "begin", "stop"),
    [
        ("start", Point(Anchor.START), None),
        ("end", Point(Anchor.END), None),
        ("120", Point(Anchor.ABSOLUTE, 120), None),
        ("+10", Point(Anchor.START, 10), None),
        ("-10", Point(Anchor.END, -10), None),
        ("@-1h", Point(Anchor.TIMESTAMP, NOW_MS - HOUR_MS), None),
        ("100:200", Point(Anchor.ABSOLUTE, 100), Point(Anchor.ABSOLUTE, 200)),
        (":end", Point(Anchor.START), Point(Anchor.END)),
        (":", Point(Anchor.START), Point(Anchor.END)),
        ("-5:", Point(Anchor.END, -5), Point(Anchor.END)),
        ("@2026-01-31T10:00", Point(Anchor.TIMESTAMP, JANUARY_MS), None),
        ("@2026-01-31T10:00:@now", Point(Anchor.TIMESTAMP, JANUARY_MS), Point(Anchor.TIMESTAMP, NOW_MS)),
    ],
)
def test_offsets_are_read(text: str, begin: Point, stop: Point | None) -> None:
    assert parse_offset_range(text, NOW_MS) == OffsetRange(begin, stop)


@pytest.mark.parametrize("text", ["", "begin", "1:2:3", "+", "@", "@yesterday", "1-2", "a:b"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not an offset"):
        parse_offset_range(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", (10, None)),
        ("end", (50, None)),
        ("20", (20, None)),
        ("3", (10, None)),
        ("90", (50, None)),
        ("+5", (15, None)),
        ("-5", (45, None)),
        ("-500", (10, None)),
        ("20:30", (20, 30)),
        ("20:90", (20, 50)),
        (":end", (10, 50)),
        ("-5:+2", (45, 47)),
        ("20:+3", (20, 23)),
        ("@now:end", (33, 50)),
        ("20:@now", (20, 33)),
    ],
)
def test_ranges_stay_within_the_partition(text: str, expected: tuple[int, int | None]) -> None:
    offset_range = parse_offset_range(text, NOW_MS)
    assert timestamps_of(offset_range) == ({NOW_MS} if "now" in text else set())
    assert resolve(offset_range, PartitionOffsets(10, 50, {NOW_MS: 33})) == expected
