"""Apache Kafka's own tool reads what we wrote: logs, indexes, producer snapshots."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log, LogSettings
from penstock.wire.records import Compression, ControlType, Record, build_batch, control_key, read_header
from support.kafka_tools import kafka_tool

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000


def append(log: Log, data: bytes) -> None:
    log.append([read_header(data)], data, NOW_MS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments: every codec, two producers, transactions, epochs, uneven timestamps."""
    path: Path = tmp_path_factory.mktemp("data") / "events-0"
    settings = LogSettings(segment_bytes=4000, index_interval_bytes=300)
    log = Log.open(OsFilesystem(), path, settings, recovery_point=0, clean=False, now_ms=NOW_MS)
    for number in range(120):
        base_offset = log.end_offset
        times = [NOW_MS + number * 10, NOW_MS + number * 10 + (7 if number % 3 else -5000)]
        records = [
            Record(base_offset + i, time, b"key-%d" % number, b"value" * (i + number % 9), (("header", b"x"),))
            for i, time in enumerate(times)
        ]
        idempotent = number % 2 == 0
        data = build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=number // 50,
            compression=list(Compression)[number % 5],
            producer_id=4000 + number % 4 if idempotent else -1,
            producer_epoch=3 if idempotent else -1,
            base_sequence=2 * (number // 4) if idempotent else -1,
            transactional=number % 4 == 2,
        )
        append(log, data)
    marker = Record(log.end_offset, NOW_MS + 5000, control_key(ControlType.COMMIT), b"\x00\x00\x00\x00\x00\x08")
    append(
        log,
        build_batch(
            [marker],
            base_offset=log.end_offset,
            leader_epoch=2,
            producer_id=4002,
            producer_epoch=3,
            transactional=True,
            control=True,
        ),
    )
    assert log.segment_count > 3
    log.close()
    return path


# Kafka 4.3 reports the first offset of each segment but the first as if it followed offset -1.
BEGINNINGS = re.compile(r"Non-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1\n")


def dump(directory: Path, suffix: str, *options: str) -> str:
    """The tool's output for all files of a kind; whatever it complains about goes to its error stream."""
    names = ",".join(str(path) for path in sorted(directory.glob(f"*{suffix}")))
    done = kafka_tool("kafka-dump-log", "--files", names, *options)
    assert done.returncode == 0, done.stderr
    assert BEGINNINGS.sub("", done.stderr) == ""
    return done.stdout


def test_every_batch_and_record_is_understood(directory: Path) -> None:
    output = dump(directory, ".log", "--deep-iteration", "--print-data-log")
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) .* isvalid: (\w+)$", output, re.MULTILINE)
    assert len(batches) == 121
    assert {valid for _, _, valid in batches} == {"true"}
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", output, re.MULTILINE)]
    assert offsets == list(range(241))
    assert "invalid bytes" not in output
    assert {codec.lower() for codec in re.findall(r"compresscodec: (\w+)", output)} == {
        codec.name.lower() for codec in Compression
    }
    assert re.search(r"endTxnMarker: COMMIT coordinatorEpoch: 8", output)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_pass_its_checks_and_point_where_they_say(directory: Path, suffix: str) -> None:
    sane = dump(directory, suffix, "--index-sanity-check")
    assert len(re.findall("passed sanity check|is empty", sane)) == len(list(directory.glob(f"*{suffix}"))) > 3
    # Without an option every entry is held against the batches; mismatches would be on the error stream.
    entries = dump(directory, suffix)
    assert len(re.findall(r"^(?:offset|timestamp): \d+ ", entries, re.MULTILINE)) > 12
    dump(directory, suffix, "--verify-index-only")


def test_producer_snapshots_are_understood(directory: Path) -> None:
    newest = sorted(directory.glob("*.snapshot"))[-1]
    done = kafka_tool("kafka-dump-log", "--files", str(newest))
    assert (done.returncode, done.stderr) == (0, "")
    producers = re.findall(
        r"producerId: (\d+) producerEpoch: 3 coordinatorEpoch: (-?\d+) .*?"
        r"firstSequence: (\d+) lastSequence: (\d+) lastOffset: (\d+) offsetDelta: 1",
        done.stdout,
    )
    assert producers == [("4000", "-1", "58", "59", "233"), ("4002", "8", "58", "59", "237")]
