"""`penstock log dump` over files written by the wire and storage rooms."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.log.files import read_file
from penstock.cli.main import penstock
from penstock.core.replica.producer_state import AppendedBatch, ProducerEntry
from penstock.storage.checkpoint import render_checkpoint
from penstock.storage.producers.snapshot import encode_snapshot
from penstock.wire.frame import encode_metadata_record
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.records import Compression, Record, build_batch

FIRST = "00000000000000000000"


def batch(base_offset: int, values: list[bytes], compression: Compression = Compression.NONE) -> bytes:
    records = [
        Record(base_offset + index, 1000 + index, b"k", value, (("h", b"x"),)) for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, base_offset=base_offset, compression=compression))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    first, second = batch(0, [b"a", b"b"]), batch(2, [b"c"], Compression.GZIP)
    (directory / f"{FIRST}.log").write_bytes(first + second)
    (directory / f"{FIRST}.index").write_bytes(struct.pack(">iiii", 2, len(first), 0, 0))
    (directory / f"{FIRST}.timeindex").write_bytes(struct.pack(">qiqi", 1001, 1, 0, 0))
    entry = ProducerEntry(7, 1, -1, 1000, -1, (AppendedBatch(0, 2, 0, 2, 1000),))
    (directory / "00000000000000000003.snapshot").write_bytes(encode_snapshot([entry]))
    (directory / "leader-epoch-checkpoint").write_bytes(render_checkpoint(["0 0", "3 2"]))
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    return directory


def dump(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(penstock, ["log", "dump", "-o", "json", *arguments])
    return result.exit_code, [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]


def test_a_directory_is_shown_whole(partition: Path) -> None:
    code, documents = dump("--verify", "--records", str(partition))
    assert code == 0
    assert [document["kind"] for document in documents] == [
        "index",
        "batch",
        "batch",
        "timeindex",
        "producer",
        "checkpoint",
        "checkpoint",
        "line",
        "line",
    ]
    batches = [document for document in documents if document["kind"] == "batch"]
    assert [(b["base_offset"], b["last_offset"], b["count"], b["compression"]) for b in batches] == [
        (0, 1, 2, "none"),
        (2, 2, 1, "gzip"),
    ]
    records = batches[1]["records"]
    assert records == [
        {"offset": 2, "timestamp": 1000, "key": "k", "value": "c", "headers": [{"name": "h", "value": "x"}]}
    ]


def test_people_get_lines(partition: Path) -> None:
    result = CliRunner().invoke(penstock, ["log", "dump", "--verify", "-r", str(partition)])
    assert result.exit_code == 0
    assert "no damage found" in result.output
    assert "offset=2" in result.output
    assert "producer_id=7" in result.output


def test_a_flipped_bit_is_found_only_when_asked(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    # A bit of the base timestamp: the records still decode, only the checksum knows.
    data[34] ^= 1
    path.write_bytes(data)
    assert dump(str(path))[0] == 0
    code, documents = dump("--verify", str(path))
    assert code == 1
    assert ["problem" in document for document in documents] == [True, False]


def test_a_torn_tail_is_named(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    path.write_bytes(path.read_bytes()[:-3])
    code, documents = dump(str(path))
    assert code == 1
    assert [document["kind"] for document in documents] == ["batch", "damage"]


def test_offsets_that_go_back_are_found(partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    path.write_bytes(batch(5, [b"x"]) + batch(5, [b"y"]))
    _, documents = dump("--verify", str(path))
    assert "offsets decrease" in str(documents[1]["problem"])


@pytest.mark.parametrize(
    ("entry", "problem"),
    [((2, 5), "no batch begins"), ((1, 0), None), ((0, -1), "no batch begins"), ((9, 0), "has offsets")],
)
def test_an_index_is_held_against_its_segment(partition: Path, entry: tuple[int, int], problem: str | None) -> None:
    (partition / f"{FIRST}.index").write_bytes(struct.pack(">ii", *entry))
    _, documents = dump("--verify", str(partition / f"{FIRST}.index"))
    assert len(documents) == 1
    assert (problem is None) == ("problem" not in documents[0])
    assert problem is None or problem in str(documents[0]["problem"])


def test_damaged_snapshots_and_checkpoints_are_named(partition: Path) -> None:
    for name, content in (("00000000000000000003.snapshot", b"\0\1junk"), ("leader-epoch-checkpoint", b"0\n9\n")):
        (partition / name).write_bytes(content)
        code, documents = dump(str(partition / name))
        assert code == 1
        assert documents[0]["kind"] == "damage"


def test_metadata_records_are_decoded(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    value = encode_metadata_record(TopicRecord(name="orders"), 0)
    path = directory / f"{FIRST}.log"
    path.write_bytes(bytes(build_batch([Record(0, 1, None, value)], base_offset=0)))
    [document] = list(read_file(path, records=True, verify=True))
    assert document["records"][0]["type"] == "TopicRecord"
    assert document["records"][0]["fields"]["name"] == "orders"


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    result = CliRunner().invoke(penstock, ["log", "dump", str(path)])
    assert result.exit_code == 1
    assert "not a file that can be shown" in result.output
    assert CliRunner().invoke(penstock, ["log", "dump", str(tmp_path)]).exit_code == 0
