"""The books of a chaos run find what they are there to find, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.up.chaos import status_line
from penstock.cli.up.chaos_ledger import Ledger


def sent(count: int, partitions: int = 1) -> Ledger:
    ledger = Ledger(range(partitions))
    for partition in range(partitions):
        for number in range(count):
            assert ledger.send(partition, 0.0) == number
    return ledger


def test_what_comes_as_expected_leaves_nothing_behind() -> None:
    ledger = sent(3)
    for number in range(3):
        ledger.note_acknowledged(0, number, 0.1)
        ledger.note_read(0, number, number)
    ledger.close()
    assert (ledger.acknowledged, ledger.read, ledger.lost, ledger.duplicated) == (3, 3, 0, 0)
    assert ledger.unread() == ledger.outstanding() == 0


def test_an_acknowledged_record_that_is_skipped_is_lost() -> None:
    ledger = sent(3)
    for number in range(3):
        ledger.note_acknowledged(0, number, 0.1)
    ledger.note_read(0, 10, 0)
    ledger.note_read(0, 11, 2)
    assert ledger.lost == 1


def test_a_record_that_is_skipped_first_and_acknowledged_later_is_lost() -> None:
    ledger = sent(2)
    ledger.note_read(0, 10, 1)
    assert ledger.lost == 0
    ledger.note_acknowledged(0, 0, 0.1)
    assert ledger.lost == 1


def test_a_record_that_was_never_promised_may_be_missing() -> None:
    ledger = sent(3)
    ledger.note_read(0, 10, 2)
    ledger.note_failed(0, 0)
    ledger.note_acknowledged(0, 2, 0.1)
    ledger.close()
    assert ledger.lost == 0


def test_an_acknowledged_tail_that_cannot_be_read_is_lost() -> None:
    ledger = sent(5)
    for number in range(5):
        ledger.note_acknowledged(0, number, 0.1)
    ledger.note_read(0, 0, 0)
    assert ledger.unread() == 4
    ledger.close()
    assert ledger.lost == 4


def test_the_same_record_at_another_offset_is_a_duplicate_and_at_the_same_offset_a_second_look() -> None:
    ledger = sent(1)
    ledger.note_acknowledged(0, 0, 0.1)
    ledger.note_read(0, 10, 0)
    ledger.note_read(0, 10, 0)
    assert ledger.duplicated == 0
    ledger.note_read(0, 11, 0)
    assert (ledger.duplicated, ledger.read) == (1, 1)


def test_the_longest_gap_counts_the_wait_under_way() -> None:
    ledger = Ledger([0])
    ledger.send(0, 10.0)
    ledger.note_acknowledged(0, 0, 10.5)
    # Nothing was asked for between 10.5 and 20: that is no gap.
    ledger.send(0, 20.0)
    assert ledger.longest_gap_s(20.1) == 0.5
    assert ledger.longest_gap_s(23.0) == 3.0
    ledger.note_acknowledged(0, 1, 24.0)
    assert ledger.longest_gap_s(99.0) == 4.0
    assert "longest gap 4.0 s" in status_line(ledger, 2, 99.0)


@given(st.lists(st.sampled_from("arsf"), max_size=60))
def test_a_faithful_cluster_never_looks_bad(actions: list[str]) -> None:
    """Whatever the interleaving of sends, acknowledgements, reads and failures at the end of the queue."""
    ledger = Ledger([0])
    log: list[int] = []
    next_unanswered = read = 0
    for action in actions:
        if action == "s":
            ledger.send(0, 0.0)
        elif action == "a" and next_unanswered < ledger.books[0].next_sent:
            log.append(next_unanswered)
            ledger.note_acknowledged(0, next_unanswered, 0.0)
            next_unanswered += 1
        elif action == "f" and next_unanswered < ledger.books[0].next_sent:
            ledger.note_failed(0, next_unanswered)
            next_unanswered += 1
        elif action == "r" and read < len(log):
            ledger.note_read(0, read, log[read])
            read += 1
    for offset in range(read, len(log)):
        ledger.note_read(0, offset, log[offset])
    ledger.close()
    assert (ledger.lost, ledger.duplicated, ledger.read) == (0, 0, len(log))
