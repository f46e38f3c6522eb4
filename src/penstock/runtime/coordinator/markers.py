"""Sends the markers of decided transactions to the leaders of their partitions, however often those change.

There is one request at a time per broker, with all its pending markers, and another one for the partitions that could
not commit theirs in time: those must not hold up the rest. Markers that a broker rejected or did not
answer are sent again after a pause to the leader at that time, until the coordinator stops or is replaced. A partition
whose topic was deleted needs no marker.

A partition answers INVALID_PRODUCER_EPOCH when a later epoch of the producer has written to it: that epoch was assigned
after the transaction had ended, so nothing of it is open there.

Transactions of version 1 share their producer's epoch. So that a copy of a marker that comes late does not end the next
one, a marker contains where its transaction began in the partition. The partition's leader reports that, and the marker
is sent once more (ADR 20).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.core.replica.producer_state import NO_OFFSET
from penstock.core.transaction.contract import Markers
from penstock.core.transaction.transaction import EPOCH_BUMPS, by_topic
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.env import Env
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

RETRY_MIN_MS = 50
RETRY_MAX_MS = 1_000
PARTITIONS_PER_REQUEST_MAX = 5_000
# Requests about slow partitions have a connection of their own, where the others do not wait behind them.
MAIN_LANE, SLOW_LANE = -1, -2

logger = logging.getLogger("penstock.transactions")

_NO_ANSWER = WritableTxnMarkerPartitionResult(error_code=ErrorCode.REQUEST_TIMED_OUT)
_DONE = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
_EXPECTED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


@dataclass(slots=True)
class MarkerDelivery:
    """Markers to deliver. `report` is called with partitions that have theirs, `is_wanted` is whether to continue."""

    markers: Markers
    report: Callable[[list[TopicPartition]], None]
    is_wanted: Callable[[], bool]
    # Where the transaction began, in partitions that reported it.
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def first_offsets_of(self, topic: str, indexes: Iterable[int]) -> list[int]:
        """The first offsets that a marker must contain; none where the epoch suffices."""
        if self.markers.transaction_version >= EPOCH_BUMPS:
            return []
        return [self.first_offsets.get(TopicPartition(topic, index), NO_OFFSET) for index in indexes]


@dataclass(slots=True)
class Portion:
    """The part of a delivery that goes to one broker, and the pause before a retry."""

    delivery: MarkerDelivery
    partitions: list[TopicPartition]
    pause_ms: int


class TransactionMarkers:
    """Sends this broker's transaction markers to the leaders of partitions."""

    def __init__(
        self,
        env: Env,
        brokers: Brokers,
        leader_of: Callable[[str, int], int | None],
    ) -> None:
        """`leader_of` returns a partition's leader: NO_LEADER for none at the moment, None for an unknown partition."""
        self._env = env
        self._brokers = brokers
        self._leader_of = leader_of
        # By broker, and whether they are for slow partitions.
        self._queues: dict[tuple[int, bool], deque[Portion]] = {}
        # Queues that have a delivery task.
        self._busy: set[tuple[int, bool]] = set()
        # Partitions that had not committed their last marker when they were to answer.
        self._slow: set[TopicPartition] = set()

    def send(
        self,
        markers: Markers,
        report: Callable[[list[TopicPartition]], None],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Deliver markers to their partitions, while `is_wanted`; each partition is reported once."""
        self._route(Portion(MarkerDelivery(markers, report, is_wanted), [*markers.partitions], RETRY_MIN_MS))

    def _route(self, portion: Portion) -> None:
        """Queue each partition for its leader; partitions without a leader wait."""
        delivery = portion.delivery
        if not delivery.is_wanted():
            return
        gone: list[TopicPartition] = []
        waiting: list[TopicPartition] = []
        by_queue: dict[tuple[int, bool], list[TopicPartition]] = {}
        for partition in portion.partitions:
            leader = self._leader_of(*partition)
            if leader is None:
                gone.append(partition)
            elif leader == NO_LEADER:
                waiting.append(partition)
            else:
                by_queue.setdefault((leader, partition in self._slow), []).append(partition)
        self._slow.difference_update(gone)
        self._try_later(delivery, waiting, portion.pause_ms)
        for queue, partitions in by_queue.items():
            self._queues.setdefault(queue, deque()).append(Portion(delivery, partitions, portion.pause_ms))
            if queue not in self._busy:
                self._busy.add(queue)
                self._env.spawn(self._deliver(queue), f"transaction markers to {queue[0]}")
        if gone:
            delivery.report(gone)

    def _try_later(self, delivery: MarkerDelivery, partitions: list[TopicPartition], pause_ms: int) -> None:
        if partitions:
            portion = Portion(delivery, partitions, min(2 * pause_ms, RETRY_MAX_MS))
            asyncio.get_running_loop().call_later(pause_ms / 1000, self._route, portion)

    async def _deliver(self, name: tuple[int, bool]) -> None:
        broker_id, is_slow = name
        queue = self._queues[name]
        try:
            while queue:
                portions = _take(queue)
                if not portions:
                    continue
                try:
                    lane = SLOW_LANE if is_slow else MAIN_LANE
                    response = await self._brokers.ask(broker_id, _request(portions), lane=lane)
                except (PeerLost, ApiError) as error:
                    logger.info("resending transaction markers to broker %d: %s", broker_id, error)
                    self._resend(portions)
                except BaseException:
                    # A bug of ours must not leave transactions open, which would stop their readers.
                    self._resend(portions)
                    raise
                else:
                    self._note(portions, response)
        finally:
            self._busy.discard(name)

    def _resend(self, portions: Iterable[Portion]) -> None:
        for portion in portions:
            self._try_later(portion.delivery, portion.partitions, portion.pause_ms)

    def _note(self, portions: Sequence[Portion], response: WriteTxnMarkersResponse) -> None:
        """Report the partitions that have their marker, and resend the rest."""
        answers = {
            (marker.producer_id, topic.name, row.partition_index): row
            for marker in response.markers
            for topic in marker.topics
            for row in topic.partitions
        }
        for delivery, partitions, pause_ms in ((one.delivery, one.partitions, one.pause_ms) for one in portions):
            producer_id = delivery.markers.producer_id
            rows = {one: answers.get((producer_id, *one), _NO_ANSWER) for one in partitions}
            told = {one: row.first_offset for one, row in rows.items() if row.first_offset != NO_OFFSET}
            errors = {one: ErrorCode(row.error_code) for one, row in rows.items() if one not in told}
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in errors.values():
                logger.warning(
                    "another coordinator has taken over %s and writes its markers",
                    delivery.markers.transactional_id,
                )
                continue
            if told:
                delivery.first_offsets |= told
                self._route(Portion(delivery, [*told], pause_ms))
            for partition, row in rows.items():
                if row.error_code == ErrorCode.REQUEST_TIMED_OUT:
                    self._slow.add(partition)
                else:
                    self._slow.discard(partition)
            for partition, error in errors.items():
                if error not in _DONE and error not in _EXPECTED:
                    logger.error("the marker of producer %d for %s: %s", producer_id, partition, error.name)
            self._try_later(delivery, [one for one, error in errors.items() if error not in _DONE], pause_ms)
            done = [one for one, error in errors.items() if error in _DONE]
            if done and delivery.is_wanted():
                delivery.report(done)


def _take(queue: deque[Portion]) -> list[Portion]:
    """The portions for one request; those that are no longer wanted are dropped."""
    portions: list[Portion] = []
    size = 0
    while queue and (not portions or size + len(queue[0].partitions) <= PARTITIONS_PER_REQUEST_MAX):
        portion = queue.popleft()
        if portion.delivery.is_wanted():
            portions.append(portion)
            size += len(portion.partitions)
    return portions


def _request(portions: Iterable[Portion]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        [
            WritableTxnMarker(
                portion.delivery.markers.producer_id,
                portion.delivery.markers.producer_epoch,
                portion.delivery.markers.committed,
                [
                    WritableTxnMarkerTopic(topic, indexes, portion.delivery.first_offsets_of(topic, indexes))
                    for topic, indexes in by_topic(portion.partitions).items()
                ],
                portion.delivery.markers.coordinator_epoch,
                portion.delivery.markers.transaction_version,
            )
            for portion in portions
        ]
    )
