"""The process that counts keys: its jobs, its answers, and what it does with files that are not what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.hot_keys.tally import HotKey, Report
from penstock.runtime.hot_keys import worker
from penstock.runtime.hot_keys.worker import (
    Counted,
    Job,
    Outcome,
    Piece,
    count,
    decode_job,
    decode_outcome,
    encode_job,
    encode_outcome,
)
from penstock.wire.records import Record, build_batch


def batch(base_offset: int, keys: list[bytes], size: int = 5) -> bytes:
    records = [Record(base_offset + number, 0, key, b"v" * size) for number, key in enumerate(keys)]
    return build_batch(records, base_offset=base_offset)


def job(*pieces: Piece, records_max: int = 1_000) -> Job:
    return Job([list(pieces)], records_max, 10, 10_000)


def read_of(files: dict[str, bytes]) -> worker.Read:
    def read(path: str, position: int, size: int) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path][position : position + size]

    return read


def test_jobs_and_answers_survive_the_pipe() -> None:
    given = Job([[Piece("/a/b.log", 5, 100, 7)], []], 10, 3, 99)
    assert decode_job(encode_job(given)) == given
    counted = [Counted(Report(1, 2, 3, 4, 5, 6, 7, 8, [HotKey(b"\xff\0", True, 1, 2)]), "why")]
    assert decode_outcome(encode_outcome(Outcome(counted, 1.5))) == Outcome(counted, 1.5)


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1_000_000])
def test_pieces_are_read_in_chunks_of_whole_batches(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(worker, "CHUNK_BYTES", max(chunk_bytes, 61))
    before = batch(0, [b"skipped"])
    data = b"".join(batch(1 + 2 * number, [b"a", b"b%d" % number], size=30) for number in range(20))
    later = batch(41, [b"a"])
    pieces = (Piece("x", len(before), len(data), 3), Piece("y", 0, len(later), 41))
    (counted,) = count(job(*pieces), read_of({"x": before + data + b"more", "y": later}))
    assert not counted.problem
    report = counted.report
    assert (report.first_offset, report.next_offset, report.records) == (3, 42, 39)
    assert report.keys[0][:3] == (b"a", False, 20)


def test_a_file_that_is_gone_or_was_replaced_ends_the_counting() -> None:
    data = batch(0, [b"a", b"a"])
    present = Piece("x", 0, len(data), 0)
    for missing in (Piece("gone", 0, 10, 2), Piece("x", 7, len(data) - 7, 2), Piece("short", 0, 200, 2)):
        (counted,) = count(job(present, missing), read_of({"x": data, "short": data[:70]}))
        assert counted.problem
        assert counted.report.records == 2
    damaged = bytearray(data)
    damaged[-1] ^= 1
    (counted,) = count(job(present), read_of({"x": bytes(damaged)}))
    assert (bool(counted.problem), counted.report.records) == (True, 0)


def test_the_budget_is_shared_by_partitions() -> None:
    files = {name: b"".join(batch(number, [b"k"]) for number in range(300)) for name in ("x", "y")}
    pieces = [[Piece(name, 0, len(data), 0)] for name, data in files.items()]
    few = count(Job(pieces, 10, 5, 10_000), read_of(files))
    assert [one.report.records for one in few] == [300, 300], "no less than a chunk"
    assert count(Job(pieces, 10, 5, -1), read_of(files))[0].report.records == 0


def test_files_are_read_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    data = batch(0, [b"a"])
    path.write_bytes(data)
    (counted,) = count(job(Piece(str(path), 0, len(data), 0)), worker._read_file)
    assert counted.report.records == 1
