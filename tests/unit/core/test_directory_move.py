"""The order of a move between data directories, and which log a start takes for the replica."""

from __future__ import annotations

import pytest

from penstock.core.replica.directory_move import REST_BYTES_MAX, FoundLog, MoveStep, next_step, settle

OLD, NEW, THIRD = b"o" * 16, b"n" * 16, b"t" * 16


@pytest.mark.parametrize(
    ("rest_bytes", "is_assigned", "step"),
    [
        (REST_BYTES_MAX + 1, False, MoveStep.COPY),
        (REST_BYTES_MAX, False, MoveStep.ASSIGN),
        (0, False, MoveStep.ASSIGN),
        # Much was appended while the controller was told.
        (REST_BYTES_MAX + 1, True, MoveStep.COPY),
        (REST_BYTES_MAX, True, MoveStep.SWAP),
    ],
)
def test_the_logs_change_places_when_little_is_missing_and_the_controller_knows(
    rest_bytes: int, is_assigned: bool, step: MoveStep
) -> None:
    assert next_step(rest_bytes, is_assigned) is step


def test_a_crash_while_copying_leaves_the_replica_and_the_future_one() -> None:
    current, future = FoundLog(OLD), FoundLog(NEW, is_future=True)
    for assigned in (OLD, NEW):
        assert settle([future, current], assigned) == (current, future, ())


def test_of_two_logs_the_later_one_is_the_replica() -> None:
    old, new = FoundLog(OLD, False, 5, 100), FoundLog(NEW, False, 5, 120)
    assert settle([old, new], NEW) == (new, None, (old,))
    # The new one lost what was not synced when the power failed.
    torn = new._replace(end_offset=90)
    assert settle([old, torn], NEW) == (old, None, (torn,))
    # It was truncated, and followed a leader of a later epoch from there on.
    cut = FoundLog(NEW, False, 6, 95)
    assert settle([old, cut], NEW) == (cut, None, (old,))


def test_of_two_equal_logs_the_one_that_the_controller_knows_is_the_replica() -> None:
    old, new = FoundLog(OLD, False, 5, 100), FoundLog(NEW, False, 5, 100)
    for found in ([old, new], [new, old]):
        assert settle(found, NEW) == (new, None, (old,))
        assert settle(found, OLD) == (old, None, (new,))


def test_a_future_replica_alone_counts_only_where_the_controller_knows_its_directory() -> None:
    future = FoundLog(NEW, is_future=True)
    assert settle([future], NEW) == (future, None, ())
    assert settle([future], OLD) == (None, None, (future,))


def test_one_future_replica_continues_and_not_in_the_directory_of_the_replica() -> None:
    current = FoundLog(OLD)
    here, there, elsewhere = (FoundLog(one, is_future=True) for one in (OLD, NEW, THIRD))
    assert settle([current, here, there, elsewhere], THIRD) == (current, elsewhere, (here, there))
    assert settle([current, here], OLD) == (current, None, (here,))
