"""The aborted transactions of a log: found across segments, kept across restarts, cut with the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.files import OsFilesystem
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.producers.aborted_transactions import AbortedTransactions
from penstock.storage.producers.transaction_index import ENTRY_BYTES, AbortedTransaction

SEGMENTS = [0, 100, 200]
# A transaction that began in the first segment and ended in the second, and one in each.
FIRST = AbortedTransaction(1, 10, 20, 15)
LONG = AbortedTransaction(2, 15, 120, 110)
SECOND = AbortedTransaction(3, 110, 130, 131)
THIRD = AbortedTransaction(4, 210, 220, 221)


@pytest.fixture
def home(tmp_path: Path) -> PartitionFiles:
    return PartitionFiles(OsFilesystem(), tmp_path)


@pytest.fixture
def aborted(home: PartitionFiles) -> AbortedTransactions:
    found = AbortedTransactions(home)
    found.note(0, FIRST)
    found.note(100, LONG)
    found.note(100, SECOND)
    found.note(200, THIRD)
    return found


def reloaded(home: PartitionFiles) -> AbortedTransactions:
    found = AbortedTransactions(home)
    assert found.load(SEGMENTS) == []
    return found


@pytest.mark.parametrize(
    ("offset", "upper_bound", "found"),
    [
        (0, 300, [FIRST, LONG, SECOND, THIRD]),
        (0, 16, [FIRST, LONG]),
        (0, 15, [FIRST]),
        (21, 100, [LONG]),
        (121, 131, [SECOND]),
        (131, 210, []),
        (131, 211, [THIRD]),
        (221, 300, []),
    ],
)
def test_overlaps_are_found_across_segments(
    aborted: AbortedTransactions, home: PartitionFiles, offset: int, upper_bound: int, found: list[AbortedTransaction]
) -> None:
    assert aborted.overlapping(offset, upper_bound) == found
    assert reloaded(home).overlapping(offset, upper_bound) == found


def test_entries_wait_for_the_next_sync(aborted: AbortedTransactions, home: PartitionFiles) -> None:
    home.take_unsynced()
    aborted.note(200, AbortedTransaction(5, 230, 240, 241))
    files, _ = home.take_unsynced()
    assert [file.path.name for file in files] == ["00000000000000000200.txnindex"]


def test_a_cut_takes_the_markers_behind_it(aborted: AbortedTransactions, home: PartitionFiles) -> None:
    home.take_unsynced()
    aborted.truncate(125)
    assert aborted.overlapping(0, 300) == [FIRST, LONG]
    files, _ = home.take_unsynced()
    assert [(file.path.name, file.size) for file in files] == [("00000000000000000100.txnindex", ENTRY_BYTES)]
    assert reloaded(home).overlapping(0, 300) == [FIRST, LONG]
    aborted.note(100, SECOND)
    assert reloaded(home).overlapping(0, 300) == [FIRST, LONG, SECOND]


def test_a_cut_at_a_segments_start_leaves_the_ones_before_alone(
    aborted: AbortedTransactions, home: PartitionFiles
) -> None:
    home.take_unsynced()
    aborted.truncate(200)
    assert len(aborted) == 3
    files, names_changed = home.take_unsynced()
    assert (files, names_changed) == ([], True)
    assert len(reloaded(home)) == 3, "the segment that begins there stays, without its old index"


def test_a_segment_that_goes_takes_its_own(aborted: AbortedTransactions) -> None:
    aborted.forget(100)
    aborted.forget(100)
    assert aborted.overlapping(0, 300) == [FIRST, THIRD]


def test_a_segment_that_is_read_through_gets_a_new_index(aborted: AbortedTransactions, home: PartitionFiles) -> None:
    aborted.rebuild(100, [SECOND])
    assert reloaded(home).overlapping(0, 300) == aborted.overlapping(0, 300) == [FIRST, SECOND, THIRD]
    aborted.rebuild(100, [])
    assert reloaded(home).overlapping(0, 300) == aborted.overlapping(0, 300) == [FIRST, THIRD]
    assert "00000000000000000100.txnindex" not in home.names()


def test_a_damaged_file_is_reported(aborted: AbortedTransactions, home: PartitionFiles) -> None:
    assert len(aborted) == 4
    (home.path / "00000000000000000100.txnindex").write_bytes(b"damaged")
    found = AbortedTransactions(home)
    assert found.load(SEGMENTS) == [100]
    found.rebuild(100, [LONG, SECOND])
    assert found.overlapping(0, 300) == aborted.overlapping(0, 300)


def test_an_empty_file_has_no_entries(home: PartitionFiles) -> None:
    (home.path / "00000000000000000000.txnindex").write_bytes(b"")
    found = reloaded(home)
    assert len(found) == 0
    found.note(0, FIRST)
    assert reloaded(home).overlapping(0, 300) == [FIRST]
