"""Idempotent batches that were refused for now, so that those sent behind them are refused as well.

A client has several requests in flight, and sends a batch before it knows that the one before was refused because this
broker does not lead yet, or because replicas are missing. If the broker can append by then, the second batch would be a
gap, or, from a producer that is not known here, be stored before the first. To a gap librdkafka reacts with a new
producer epoch for all of its partitions, in which records that are stored but not acknowledged are stored once more.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.replica.producer_state import SEQUENCE_MAX, ProducerState
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.records import BatchHeader

# After these, clients send the same batch again.
TRANSIENT_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
# A client that has not sent the batch again by then has given it up.
PATIENCE_MS = 30_000
BATCHES_MAX = 10_000
# Any client chooses the name of a topic that is unknown; no topic has a longer one.
TOPIC_LENGTH_MAX = 249

# A partition as a request names it: topic, topic id, index.
RequestedPartition = tuple[str, Uuid, int]


class Postponed(NamedTuple):
    """The first and the last batch that were refused, by their base sequences."""

    producer_epoch: int
    first_sequence: int
    last_sequence: int
    # Not the error itself: its traceback holds the request.
    code: ErrorCode
    reason: str
    until_ms: int


class PostponedBatches:
    """The refused batches of each producer and partition."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: dict[tuple[RequestedPartition, int], Postponed] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def note(self, place: RequestedPartition, header: BatchHeader, error: ApiError, now_ms: int) -> None:
        """A batch was refused for now."""
        if header.producer_id < 0 or error.code not in TRANSIENT_ERRORS or len(place[0]) > TOPIC_LENGTH_MAX:
            return
        key, sequence = (place, header.producer_id), header.base_sequence
        known = self._batches.get(key)
        last = sequence
        if known is not None and known.producer_epoch == header.producer_epoch:
            last = sequence if _is_later(sequence, known.last_sequence) else known.last_sequence
            if _is_later(sequence, known.first_sequence):
                self._batches[key] = known._replace(last_sequence=last)
                return
        self._batches.pop(key, None)
        self._batches[key] = Postponed(
            header.producer_epoch, sequence, last, error.code, error.message, now_ms + PATIENCE_MS
        )
        assert header.producer_id >= 0, "only batches of idempotent producers have an order"
        assert not _is_later(sequence, last), "the first batch is not after the last one"
        if len(self._batches) > BATCHES_MAX:
            del self._batches[next(iter(self._batches))]
            assert len(self._batches) == BATCHES_MAX

    def refusal(
        self, place: RequestedPartition, header: BatchHeader, producers: ProducerState, now_ms: int
    ) -> ApiError | None:
        """Why a batch cannot be appended before an earlier one; None if it can."""
        key = place, header.producer_id
        known = self._batches.get(key)
        if known is None:
            return None
        first = known.first_sequence
        entry = producers.get(header.producer_id)
        is_stored = False
        if entry is not None and entry.producer_epoch == known.producer_epoch:
            is_stored = not _is_later(known.last_sequence, entry.last_sequence)
            if not _is_later(first, entry.last_sequence):
                # The first ones are, as they had reached this replica from a leader before.
                first = (entry.last_sequence + 1) & SEQUENCE_MAX
        if is_stored or now_ms >= known.until_ms or header.producer_epoch != known.producer_epoch:
            del self._batches[key]
            return None
        if not _is_later(header.base_sequence, first):
            return None
        return ApiError(
            known.code,
            f"the batch with sequence {first} comes first, and was refused: {known.reason}",
        )


def _is_later(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another one; after the largest they begin again."""
    return 0 < (sequence - other) & SEQUENCE_MAX <= SEQUENCE_MAX // 2
