"""Apache Kafka reads a segment of our batches, records and all, for every codec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.wire.records import Compression, ControlType, Record, build_batch, control_key
from support.kafka_tools import kafka_tool

VALUE_SIZE = 90_000


@pytest.mark.java
def test_dump_log_reads_every_codec_headers_nulls_and_control_batches(tmp_path: Path) -> None:
    segment = bytearray()
    offset = 0
    for codec in Compression:
        records = [
            Record(offset, 1_700_000_000_000, b"key-%d" % codec, b"small", (("h", b"1"), ("null", None))),
            Record(offset + 1, 1_700_000_000_007, None, b"ab" * (VALUE_SIZE // 2)),
            Record(offset + 2, 1_700_000_000_001, b"tombstone", None),
        ]
        segment += build_batch(records, base_offset=offset, compression=codec, leader_epoch=3, producer_id=9)
        offset += 3
    marker = Record(offset, 1_700_000_000_009, control_key(ControlType.COMMIT), b"\0\0\0\0\0\5")
    segment += build_batch([marker], base_offset=offset, control=True, transactional=True, producer_id=9)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment)

    dump = kafka_tool("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", str(path))

    assert dump.returncode == 0, dump.stderr
    batches = re.findall(r"^baseOffset: (\d+) .*compresscodec: (\w+) .*isvalid: (\w+)$", dump.stdout, re.MULTILINE)
    assert batches == [(str(3 * codec), codec.name.lower(), "true") for codec in Compression] + [("15", "none", "true")]
    values = re.findall(r"valueSize: (-?\d+) .*headerKeys: \[(.*?)\]", dump.stdout)
    assert values[:15] == [("5", "h,null"), (str(VALUE_SIZE), ""), ("-1", "")] * len(Compression)
    assert dump.stdout.count("ab" * 1000) >= len(Compression)
    assert "endTxnMarker: COMMIT coordinatorEpoch: 5" in dump.stdout
