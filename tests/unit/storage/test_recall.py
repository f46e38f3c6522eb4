"""Repeated batches are found in the log, further back than a producer's last five and only where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from log_support import LogMaker, append, make_batch

from penstock.core.replica.producer_state import Duplicate
from penstock.model.errors import ApiError, ErrorCode
from penstock.storage.files import File
from penstock.storage.log import Log
from penstock.storage.producers import recall
from penstock.storage.producers.recall import (
    HEADERS_PER_TURN,
    OFFSETS_MAX,
    PRODUCERS_MAX,
    RecalledBatches,
    SearchInterrupted,
    Unsearched,
)
from penstock.storage.scan import WALK_CHUNK_BYTES
from penstock.wire.records import BatchHeader, read_header

PRODUCER = 7
REFUSED = ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap")


def repeated(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    values = [b"again"] * count
    return read_header(make_batch(0, values, producer_id=producer_id, producer_epoch=epoch, sequence=sequence))


def written(logs: LogMaker, batches: int = 12, value: bytes = b"a") -> Log:
    """Batches of two records, each followed by one of another producer."""
    log = logs.open()
    for number in range(batches):
        append(log, value, b"b", producer_id=PRODUCER, producer_epoch=0, sequence=2 * number)
        append(log, b"other", producer_id=8, producer_epoch=0, sequence=number)
    return log


def search(recalled: RecalledBatches, log: Log, header: BatchHeader) -> Duplicate | None:
    return asyncio.run(recalled.search(log, header, REFUSED))


def offsets(found: Duplicate | None) -> tuple[int, int] | None:
    return None if found is None else (found.base_offset, found.last_offset)


def test_every_batch_that_is_still_there_is_found_also_after_a_restart(logs: LogMaker) -> None:
    log = written(logs)
    for _ in range(3):
        for number in range(12):
            assert offsets(search(RecalledBatches(), log, repeated(2 * number, 2))) == (3 * number, 3 * number + 1)
        log = logs.restart(log)


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
        assert search(recalled, log, header) is None
    assert offsets(search(recalled, log, repeated(0, 2))) == (0, 1)
    log.advance_start_offset(3)
    for known in (recalled, RecalledBatches()):
        assert search(known, log, repeated(0, 2)) is None
        assert offsets(search(known, log, repeated(2, 2))) == (3, 4)


def test_nothing_is_searched_where_a_request_is_appended(logs: LogMaker) -> None:
    recalled, log = RecalledBatches(), written(logs)
    with patch.object(Log, "read", side_effect=AssertionError("the log was read")):
        with pytest.raises(Unsearched) as unsearched:
            recalled.lookup(log, repeated(0, 2), REFUSED)
        assert (unsearched.value.header, unsearched.value.refused) == (repeated(0, 2), REFUSED)
        # What leaves a gap is no repeated batch.
        assert recalled.lookup(log, repeated(30, 2), REFUSED) is None
    search(recalled, log, repeated(0, 2))
    with patch.object(Log, "read", side_effect=AssertionError("the log was read")):
        assert offsets(recalled.lookup(log, repeated(0, 2), REFUSED)) == (0, 1)
        assert offsets(recalled.lookup(log, repeated(4, 2), REFUSED)) == (6, 7)
        assert recalled.lookup(log, repeated(1, 1), REFUSED) is None


def test_only_what_was_appended_since_is_searched_again(logs: LogMaker) -> None:
    recalled, log = RecalledBatches(), written(logs)
    search(recalled, log, repeated(0, 2))
    before = log.end_offset
    for number in range(12, 18):
        append(log, b"a", b"b", producer_id=PRODUCER, producer_epoch=0, sequence=2 * number)
    with patch.object(recall, "headers_between", side_effect=recall.headers_between) as reads:
        assert offsets(search(recalled, log, repeated(24, 2))) == (before, before + 1)
        assert offsets(search(recalled, log, repeated(0, 2))) == (0, 1)
        assert [call.args[1:] for call in reads.call_args_list] == [(before, before + 12)]


def test_of_large_batches_only_the_headers_are_read(logs: LogMaker) -> None:
    log = written(logs, value=bytes(200_000))
    sizes: list[int] = []
    kind = type(log._active.file)
    real = kind.read

    def read(file: File, position: int, size: int) -> bytes:
        sizes.append(size)
        return real(file, position, size)

    with patch.object(kind, "read", read):
        assert offsets(search(RecalledBatches(), log, repeated(0, 2))) == (0, 1)
    assert sizes
    assert max(sizes) <= WALK_CHUNK_BYTES


def test_others_get_their_turn_during_a_search(logs: LogMaker) -> None:
    log = written(logs, HEADERS_PER_TURN)
    turns = 0

    async def story() -> None:
        nonlocal turns
        searching = asyncio.ensure_future(RecalledBatches().search(log, repeated(0, 2), REFUSED))
        while not searching.done():
            await asyncio.sleep(0)
            turns += 1
        assert offsets(searching.result()) == (0, 1)

    asyncio.run(story())
    # There are two batches a number.
    assert turns > 2


def test_a_search_ends_when_the_log_is_truncated_meanwhile(logs: LogMaker) -> None:
    log = written(logs)

    async def story() -> None:
        recalled = RecalledBatches()
        searching = asyncio.ensure_future(recalled.search(log, repeated(2, 2), REFUSED))
        await asyncio.sleep(0)
        log.truncate_to(3)
        recalled.clear()
        with pytest.raises(SearchInterrupted):
            await searching
        assert await recalled.search(log, repeated(2, 2), REFUSED) is None

    asyncio.run(story())


def test_what_is_remembered_is_bounded(logs: LogMaker) -> None:
    recalled, log = RecalledBatches(), written(logs)
    for producer_id in range(100, 100 + PRODUCERS_MAX + 5):
        recalled._note(producer_id, recall._Found(0), {(0, 0, 0): Duplicate(0, 0, 0)}, log.end_offset)
    assert len(recalled._found) == PRODUCERS_MAX
    many = {(0, number, number): Duplicate(number, number, 0) for number in range(OFFSETS_MAX)}
    recalled._note(1, recall._Found(0), many, OFFSETS_MAX)
    assert [*recalled._found] == [1]


@pytest.fixture(autouse=True)
def small_steps() -> Iterator[None]:
    """More than one step in each search."""
    with patch.object(recall, "LOCATE_BYTES", 512):
        yield
