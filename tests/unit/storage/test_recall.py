"""Repeated batches are found in the log, further back than a producer's last five and only where they are."""

from __future__ import annotations

from unittest.mock import patch

from log_support import LogMaker, append, make_batch

from penstock.core.replica.producer_state import Duplicate
from penstock.storage.log import Log
from penstock.storage.producers import recall
from penstock.storage.producers.recall import SEARCHES_MAX, RecalledBatches
from penstock.wire.records import BatchHeader, read_header

PRODUCER = 7


def repeated(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    values = [b"again"] * count
    return read_header(make_batch(0, values, producer_id=producer_id, producer_epoch=epoch, sequence=sequence))


def written(logs: LogMaker, batches: int = 12) -> Log:
    """Batches of two records, each followed by one of somebody else."""
    log = logs.open()
    for number in range(batches):
        append(log, b"a", b"b", producer_id=PRODUCER, producer_epoch=0, sequence=2 * number)
        append(log, b"other", producer_id=8, producer_epoch=0, sequence=number)
    return log


def offsets(found: Duplicate | None) -> tuple[int, int] | None:
    return None if found is None else (found.base_offset, found.last_offset)


def test_every_batch_that_is_still_there_is_found(logs: LogMaker) -> None:
    log = logs.restart(written(logs))
    for number in range(12):
        assert offsets(RecalledBatches().find(log, repeated(2 * number, 2))) == (3 * number, 3 * number + 1)
    assert len(log.producers.get(PRODUCER).batches) == 5  # type: ignore[union-attr]


def test_what_is_not_there_is_not_found(logs: LogMaker) -> None:
    recalled, log = RecalledBatches(), written(logs)
    for header in (
        repeated(1, 2),
        repeated(0, 1),
        repeated(0, 3),
        repeated(24, 2),
        repeated(26, 2),
        repeated(0, 2, epoch=1),
        repeated(0, 2, producer_id=9),
    ):
        assert recalled.find(log, header) is None
    log.advance_start_offset(3)
    assert recalled.find(log, repeated(0, 2)) is None
    assert offsets(recalled.find(log, repeated(2, 2))) == (3, 4)


def test_the_log_is_searched_once_for_a_batch_and_not_for_gaps(logs: LogMaker) -> None:
    recalled, log = RecalledBatches(), written(logs)
    with patch.object(recall, "newest_batches_of", side_effect=recall.newest_batches_of) as search:
        for _ in range(3):
            assert recalled.find(log, repeated(0, 1)) is None
            assert offsets(recalled.find(log, repeated(0, 2))) == (0, 1)
            assert recalled.find(log, repeated(30, 2)) is None
        assert search.call_count == 2
        recalled.clear()
        assert offsets(recalled.find(log, repeated(0, 2))) == (0, 1)
        assert search.call_count == 3
        for sequence in range(SEARCHES_MAX):
            recalled.find(log, repeated(sequence % 23, 3 + sequence))
        assert len(recalled._found) <= SEARCHES_MAX
