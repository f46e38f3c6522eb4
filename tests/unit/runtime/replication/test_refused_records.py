"""Which records of a batch a topic rejects, and how that is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config.topic import TopicSettings
from penstock.model.errors import ErrorCode
from penstock.runtime.replication import batch_validation
from penstock.runtime.replication.batch_validation import check_records, check_times, check_window, compression_level
from penstock.wire.record_types import RefusedRecords
from penstock.wire.records import Record, TimestampType, build_batch, read_body, read_header

NOW_MS = 1_000_000
PLAIN = replace(TopicSettings(), message_timestamp_after_max_ms=100, message_timestamp_before_max_ms=1_000)


def refusal(
    settings: TopicSettings, *rows: tuple[bytes | None, int], **options: TimestampType
) -> RefusedRecords | None:
    """Why a batch of records with these keys and timestamps is rejected."""
    records = [Record(number, timestamp, key, b"v") for number, (key, timestamp) in enumerate(rows)]
    data = bytearray(build_batch(records, **options))  # type: ignore[arg-type]
    header = read_header(data)
    body = read_body(data, 0, header, 1 << 20)
    try:
        facts = check_records(settings, header, body, NOW_MS)
        check_window(settings, header, body, facts, NOW_MS)
        check_times(settings, memoryview(data), header, body, facts, NOW_MS)
    except RefusedRecords as refused:
        return refused
    return None


@pytest.mark.parametrize("timestamp", [NOW_MS, NOW_MS + 100, NOW_MS - 1_000])
def test_timestamps_within_the_window_are_accepted(timestamp: int) -> None:
    assert refusal(PLAIN, (None, timestamp)) is None


def test_records_outside_the_window_are_named_and_counted() -> None:
    refused = refusal(PLAIN, (None, NOW_MS), (None, NOW_MS + 101), (None, NOW_MS - 1_001), (None, NOW_MS + 100))
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_TIMESTAMP
    assert refused.message.startswith("the topic rejects 2 of 4 records; the first is record 1: its timestamp 1000101")
    assert [index for index, _ in refused.refused] == [1, 2]
    assert "after.max.ms (100)" in refused.refused[0][1]
    assert "before.max.ms (1000)" in refused.refused[1][1]


def test_only_so_many_records_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_validation, "NAMED_RECORDS_MAX", 2)
    refused = refusal(PLAIN, *[(None, NOW_MS + 200)] * 5)
    assert refused is not None
    assert refused.message.startswith("the topic rejects 5 of 5 records; the first is record 0")
    assert len(refused.refused) == 2


def test_a_time_of_the_broker_is_only_the_brokers() -> None:
    append_time = replace(PLAIN, message_timestamp_type="LogAppendTime")
    assert refusal(append_time, (None, 5)) is None
    refused = refusal(append_time, (None, 5), timestamp_type=TimestampType.LOG_APPEND)
    assert refused is not None
    assert "LogAppendTime" in refused.message


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_each_codec_has_its_level(codec: str) -> None:
    settings = replace(PLAIN, compression_type=codec, **{f"compression_{codec}_level": 5})  # type: ignore[arg-type]
    assert compression_level(settings) == 5
    assert compression_level(replace(settings, compression_type="snappy")) is None
