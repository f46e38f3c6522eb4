"""The parts of the Spark source that need neither Spark nor a broker: options, plans, aborted transactions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.model.ids import TopicPartition
from penstock.spark.fetching import OffsetRange, aborted_batches, next_offset, runs
from penstock.spark.java import _shimmed, java_version
from penstock.spark.options import Bound, read_options
from penstock.spark.planning import from_stored, ranges_between, rate_limited, split_ranges, to_stored
from penstock.spark.tier.store import TierSettings
from penstock.wire.messages.fetch import AbortedTransaction
from penstock.wire.records import ControlType, Record, TimestampType, build_batch, control_key

ZERO = TopicPartition("t", 0)
ONE = TopicPartition("t", 1)
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def test_options_of_sparks_connector_are_accepted() -> None:
    options = read_options(
        {
            **BASE,
            "startingOffsets": '{"t": {"0": 5, "1": -2}}',
            "maxOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_committed",
            "groupIdPrefix": "ignored",
        },
        streaming=True,
    )
    assert options.topics == ("t",)
    assert options.starting == Bound(offsets=((ZERO, 5), (ONE, -2)))
    assert (options.offsets_per_trigger_max, options.trigger_delay_max_ms) == (10, 30_000)
    assert not options.fail_on_data_loss
    assert options.read_committed
    assert read_options(BASE, streaming=True).starting == Bound("latest")
    assert read_options(BASE, streaming=False).starting == Bound("earliest")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"subscribe": ""}, "name at least one topic"),
        ({"assign": '{"t": [0]}'}, "subscribe and assign are set"),
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is empty"),
        ({"kafka.bootstrap.servers": "host:port"}, "write host:port"),
        ({"startingOffsets": "sometime"}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": [1]}'}, "must look like"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"minPartitions": "0"}, "more than zero"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxOffsetPerTrigger": "10"}, "option 'maxoffsetpertrigger' is unknown"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is not set"),
        ({"kafka.security.protocol": "TLS"}, "use one of PLAINTEXT"),
        ({"tier.url": "bucket"}, "must look like s3://bucket/prefix"),
        ({"tier.options": "region=here"}, "tier.url does not name one"),
        ({"tier.url": "s3://b", "tier.options": "region"}, "must look like region=eu-central-1"),
    ],
)
def test_errors_of_invalid_options_contain_the_fix(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read_options({**BASE, **wrong}, streaming=False)


def test_representation_of_tier_settings_hides_credentials() -> None:
    given = {"tier.url": "s3://bucket/prefix", "tier.options": "region=here, secret_access_key=open=sesame"}
    options = read_options({**BASE, **given}, streaming=False)
    assert options.tier == TierSettings(
        "s3://bucket/prefix", (("region", "here"), ("secret_access_key", "open=sesame"))
    )
    assert "s3://bucket/prefix" in repr(options)
    assert "sesame" not in repr(options)
    with pytest.raises(ValueError, match=r"tier\.options must look") as refused:
        read_options({**BASE, **given, "tier.options": "sesame"}, streaming=False)
    assert "sesame" not in str(refused.value)
    assert read_options(BASE, streaming=False).tier is None


def test_patterns_must_compile() -> None:
    with pytest.raises(ValueError, match="not a valid regular expression"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, streaming=True)


def test_checkpoints_have_the_form_of_sparks_connector() -> None:
    assert to_stored({ONE: 2, ZERO: 1}) == {"t": {"0": 1, "1": 2}}
    assert from_stored({"t": {"0": 1, "1": 2}}) == {ZERO: 1, ONE: 2}


def test_rate_limit_is_shared_in_proportion_without_starvation() -> None:
    limited = rate_limited({ZERO: 0, ONE: 100}, {ZERO: 900, ONE: 200}, 100)
    assert limited == {ZERO: 90, ONE: 110}
    assert rate_limited({ZERO: 0, ONE: 0}, {ZERO: 100_000, ONE: 1}, 10) == {ZERO: 9, ONE: 1}
    assert rate_limited({ZERO: 0}, {ZERO: 5, ONE: 5}, 10) == {ZERO: 5, ONE: 5}


def test_new_partitions_start_at_their_beginning() -> None:
    assert ranges_between({ZERO: 3}, {ZERO: 3, ONE: 7}) == [OffsetRange("t", 1, 0, 7)]


def offsets_of(ranges: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.partition, offset) for each in ranges for offset in range(each.start, each.end)]


@pytest.mark.parametrize(("least", "most"), [(1, None), (5, None), (16, None), (100, None), (None, 7), (9, 40)])
def test_splits_cover_the_same_records(least: int | None, most: int | None) -> None:
    ranges = [OffsetRange("t", 0, 10, 11), OffsetRange("t", 1, 0, 90), OffsetRange("u", 0, 5, 14)]
    parts = split_ranges(ranges, least, most)
    covered = [(each.topic, each.partition, offset) for each in parts for offset in range(each.start, each.end)]
    assert covered == [
        (each.topic, each.partition, offset) for each in ranges for offset in range(each.start, each.end)
    ]
    assert len(parts) >= min(least or 0, 100)
    assert most is None or max(each.end - each.start for each in parts) <= most


def batch(base_offset: int, count: int = 2, *, producer: int = -1, timestamp_type: Any = TimestampType.CREATE) -> bytes:
    records = [Record(base_offset + index, 1000 + index, b"k", b"v") for index in range(count)]
    more: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if producer >= 0 else {}
    transactional = producer >= 0
    return build_batch(
        records, base_offset=base_offset, transactional=transactional, timestamp_type=timestamp_type, **more
    )


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    records = [Record(offset, 1000, control_key(kind), b"\0\0\0\0\0\0")]
    return build_batch(
        records, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


def test_batches_of_aborted_transactions_are_found() -> None:
    records = b"".join(
        (
            batch(0, producer=7),
            batch(2),
            batch(4, producer=8),
            marker(6, 7, ControlType.ABORT),
            batch(7, producer=7),
            marker(9, 8, ControlType.COMMIT),
            marker(10, 7, ControlType.COMMIT),
        )
    )
    assert aborted_batches(records, [AbortedTransaction(7, 0)]) == {0}
    # Cut before the marker, as a fetch response may be: what belongs to the transaction is still left out.
    assert aborted_batches(batch(0, producer=7) + batch(2, producer=7), [AbortedTransaction(7, 0)]) == {0, 2}
    again = records[: -len(marker(10, 7, ControlType.COMMIT))] + marker(10, 7, ControlType.ABORT)
    assert aborted_batches(again, [AbortedTransaction(7, 7), AbortedTransaction(7, 0)]) == {0, 7}


def test_reading_continues_after_gaps_and_stops_at_the_end() -> None:
    records = batch(5) + batch(10)
    assert next_offset(records, 3, 100) == 12
    assert next_offset(records, 3, 8) == 8
    assert next_offset(records[:-1], 3, 100) == 7
    assert next_offset(b"", 3, 100) == 3


def test_runs_end_where_the_kind_of_timestamp_changes() -> None:
    first, second = batch(0), batch(2, timestamp_type=TimestampType.LOG_APPEND)
    found = list(runs(first + batch(2) + second + second[:-1]))
    assert [(run.end - run.start, run.timestamp_type) for run in found] == [
        (2 * len(first), TimestampType.CREATE),
        (len(second), TimestampType.LOG_APPEND),
    ]


def test_java_versions_are_read_and_the_shim_drops_the_incubator(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "release").write_text(['IMPLEMENTOR="x"', 'JAVA_VERSION="21.0.4"\n'][1])
    assert java_version(tmp_path / "bin" / "java") == 21
    echo = tmp_path / "bin" / "java"
    echo.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "environment"))
    shim = _shimmed(echo) / "bin" / "java"
    command = [str(shim), "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "<-cp>\n<a b>\n<Main>\n<>\n"
