"""Which batches a share group gets, and where it starts."""

from __future__ import annotations

import pytest

from penstock.config.offset_reset import BY_DURATION, EARLIEST, LATEST, OffsetReset, parse_offset_reset
from penstock.core.share.batches import Aborted, batches_in, deliverable, with_records
from penstock.core.share.contract import Acquired, ShareSettings
from penstock.core.share.partition import SharePartition
from penstock.wire.records import Record, build_batch, read_header

COUNT = 3


def batch(base_offset: int, *, producer_id: int = -1, transactional: bool = False) -> bytes:
    rows = [Record(number, 0, None, b"x") for number in range(COUNT)]
    options = {"producer_epoch": 0} if producer_id >= 0 else {}
    data = bytearray(build_batch(rows, producer_id=producer_id, transactional=transactional, **options))
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def test_batches_are_sent_only_where_they_have_acquired_records() -> None:
    parts = [batch(offset) for offset in (0, 3, 6, 9)]
    found = batches_in(b"".join(parts), 0)
    assert (found.end, len(found.headers)) == (12, 4)
    assert [bytes(one) for one in with_records(found, [Acquired(4, 7, 1)])] == [parts[1] + parts[2]]
    sent = with_records(found, [Acquired(1, 1, 1), Acquired(2, 2, 2), Acquired(9, 9, 1)])
    assert [bytes(one) for one in sent] == [parts[0], parts[3]]
    assert with_records(found, []) == []
    assert batches_in(b"", 7).end == 7


def test_aborted_records_are_not_delivered() -> None:
    parts = [batch(0, producer_id=5, transactional=True), batch(3), batch(6, producer_id=5, transactional=True)]
    headers = [read_header(part, 0) for part in parts]
    assert deliverable(headers, []) == [(0, 2), (3, 5), (6, 8)]
    assert deliverable(headers, [Aborted(5, 0, 4)]) == [(3, 5), (6, 8)]
    assert deliverable(headers, [Aborted(6, 0, 9)]) == [(0, 2), (3, 5), (6, 8)]


def test_what_has_no_records_at_the_end_is_passed_over_too() -> None:
    share = SharePartition(0, [], ShareSettings())
    share.acquire("a", [(0, 4)], 100, 0)
    share.pass_over(5, 9)
    share.advance()
    assert (share.start, share.end, share.next_offset()) == (0, 10, 10)
    write = share.release("a")
    assert write is not None
    share.settle(write.number, is_durable=True)
    share.pass_over(0, 4)
    share.advance()
    assert (share.start, share.next_offset()) == (10, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", OffsetReset(EARLIEST)),
        ("LATEST", OffsetReset(LATEST)),
        ("by_duration:PT1H", OffsetReset(BY_DURATION, 3_600_000)),
        ("by_duration:P1DT2M0.5S", OffsetReset(BY_DURATION, 86_520_500)),
        ("by_duration:P2D", OffsetReset(BY_DURATION, 172_800_000)),
    ],
)
def test_where_a_group_starts(text: str, expected: OffsetReset) -> None:
    assert parse_offset_reset(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "earliest:PT1H",
        "by_duration",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1H",
        "by_duration:PT1H1D",
    ],
)
def test_what_is_no_start_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="by_duration"):
        parse_offset_reset(text)
