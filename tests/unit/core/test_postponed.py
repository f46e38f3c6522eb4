"""Batches that were refused for now hold back those behind them, for as long as they are missing."""

from __future__ import annotations

from penstock.core.replica.postponed import BATCHES_MAX, PATIENCE_MS, PostponedBatches
from penstock.core.replica.producer_state import SEQUENCE_MAX, ProducerState
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.wire.records import BatchHeader, Record, build_batch, read_header

PLACE = "orders", ZERO_UUID, 0
ALONE = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "alone")


def batch(sequence: int, *, producer: int = 7, epoch: int = 0, offset: int = 0) -> BatchHeader:
    data = build_batch([Record(0, 0, None, b"x")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return read_header(data)._replace(base_offset=offset)


def told(postponed: PostponedBatches, header: BatchHeader, producers: ProducerState, now_ms: int = 0) -> str:
    refusal = postponed.refusal(PLACE, header, producers, now_ms)
    return "" if refusal is None else refusal.code.name


def test_later_batches_wait_until_the_first_one_is_stored() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    postponed.note(PLACE, batch(5), ALONE, 0)
    postponed.note(PLACE, batch(6), ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not yet"), 0)
    assert told(postponed, batch(6), producers) == "NOT_ENOUGH_REPLICAS"
    assert told(postponed, batch(5), producers) == ""
    assert told(postponed, batch(6, producer=8), producers) == ""
    producers.update(batch(5))
    assert told(postponed, batch(6), producers) == ""
    producers.update(batch(6))
    assert told(postponed, batch(7), producers) == ""
    assert not postponed


def test_those_behind_a_first_one_that_is_stored_already_hold_back_later_ones() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    for sequence in (5, 6, 7):
        postponed.note(PLACE, batch(sequence), ALONE, 0)
    # A leader before had it, and so has this replica.
    producers.update(batch(5))
    assert told(postponed, batch(8), producers) == "NOT_ENOUGH_REPLICAS"
    assert told(postponed, batch(5), producers) == ""
    for sequence in (6, 7):
        assert told(postponed, batch(sequence), producers) == ""
        producers.update(batch(sequence))
    assert told(postponed, batch(8), producers) == ""


def test_one_that_another_leader_stored_holds_nothing_back() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    postponed.note(PLACE, batch(5), ALONE, 0)
    producers.update(batch(7))
    assert told(postponed, batch(8), producers) == ""


def test_an_earlier_one_takes_the_place_of_a_later_one() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    postponed.note(PLACE, batch(6), ALONE, 0)
    postponed.note(PLACE, batch(5), ALONE, 0)
    assert told(postponed, batch(6), producers) == "NOT_ENOUGH_REPLICAS"


def test_after_the_largest_sequence_comes_0() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    postponed.note(PLACE, batch(SEQUENCE_MAX), ALONE, 0)
    assert told(postponed, batch(0), producers) == "NOT_ENOUGH_REPLICAS"
    producers.update(batch(SEQUENCE_MAX))
    assert told(postponed, batch(0), producers) == ""


def test_a_client_that_gave_up_or_has_a_new_epoch_is_not_held_back() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    postponed.note(PLACE, batch(5), ALONE, 0)
    assert told(postponed, batch(0, epoch=1), producers) == ""
    postponed.note(PLACE, batch(5), ALONE, 0)
    assert told(postponed, batch(6), producers, PATIENCE_MS - 1) == "NOT_ENOUGH_REPLICAS"
    assert told(postponed, batch(6), producers, PATIENCE_MS) == ""


def test_what_is_refused_for_good_or_has_no_sequence_is_not_noted() -> None:
    postponed = PostponedBatches()
    postponed.note(PLACE, batch(5), ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large"), 0)
    postponed.note(PLACE, batch(-1, producer=-1), ALONE, 0)
    assert not postponed


def test_the_oldest_make_room() -> None:
    postponed = PostponedBatches()
    for producer in range(BATCHES_MAX + 1):
        postponed.note(PLACE, batch(5, producer=producer), ALONE, 0)
    assert len(postponed) == BATCHES_MAX
    assert told(postponed, batch(6, producer=0), ProducerState()) == ""
    assert told(postponed, batch(6, producer=1), ProducerState()) == "NOT_ENOUGH_REPLICAS"


def test_names_that_no_topic_has_are_not_kept() -> None:
    """A request may name 32 kB of unknown topic for each of the producer ids that it makes up."""
    postponed = PostponedBatches()
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for length in (249, 250):
        postponed.note(("t" * length, ZERO_UUID, 0), batch(5), unknown, 0)
    assert len(postponed) == 1


def test_the_first_producer_id_is_one_like_others() -> None:
    postponed, producers = PostponedBatches(), ProducerState()
    postponed.note(PLACE, batch(5, producer=0), ALONE, 0)
    assert told(postponed, batch(6, producer=0), producers) == "NOT_ENOUGH_REPLICAS"
