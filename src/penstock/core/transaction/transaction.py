"""One transactional id: its producer, its transaction, and what each can become.

A `Transaction` is immutable; the methods return the next one, and assert that the transition is legal. `record` and
`from_record` convert it to and from the coordinator's log.

Epochs end at 32,766: the last number is reserved for fencing the producer that has used up all others. After that the
id gets a new producer id. Between the decision and its completion the new one is in `next_producer_id`, afterwards the
old one is in `previous_producer_id`, so that a producer which missed the response is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.contract import ProducerIdentity, Record
from penstock.core.transaction.states import PREVIOUS, TransactionState
from penstock.model.errors import ProtocolError
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition
from penstock.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 2**15 - 1
# The last epoch that a producer can get.
EPOCH_LAST = EPOCH_MAX - 1

# transaction.version: from 1 on records have flexible fields, from 2 on every end of a transaction bumps the epoch.
FLEXIBLE_RECORDS = 1
EPOCH_BUMPS = 2

KNOWN_STATES = frozenset(TransactionState)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id in the coordinator's log. `partitions` are in insertion order."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = TransactionState.EMPTY
    partitions: Mapping[TopicPartition, None] = field(default_factory=dict)
    started_ms: int = NO_TIMESTAMP
    # The version of the client that caused the last transition; coordinators use the cluster's version.
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return self.producer_epoch >= EPOCH_LAST

    @property
    def is_commit(self) -> bool:
        """Whether a prepared transaction commits."""
        assert self.state.is_prepared
        return self.state is TransactionState.PREPARE_COMMIT

    @property
    def identity(self) -> ProducerIdentity:
        """The producer that may write now."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def ended(self) -> ProducerIdentity | None:
        """The producer whose transaction has just ended, which bumped the epoch; None unless that happened last."""
        if self.client_version < EPOCH_BUMPS or self.state in (TransactionState.EMPTY, TransactionState.ONGOING):
            return None
        if self.producer_epoch > 0:
            return ProducerIdentity(self.producer_id, self.producer_epoch - 1)
        return ProducerIdentity(self.previous_producer_id, EPOCH_LAST)

    @property
    def partitions_bytes(self) -> int:
        """About how much of the record the partitions are."""
        topics = {topic for topic, _ in self.partitions}
        return 4 * len(self.partitions) + sum(8 + len(topic) for topic in topics)

    def _become(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        assert self.state in PREVIOUS[state], f"{self.transactional_id}: {self.state.title} cannot become {state.title}"
        after = replace(self, state=state, previous_producer_id=self.producer_id, updated_ms=now_ms, **changes)
        assert 0 <= after.producer_epoch <= EPOCH_MAX
        assert after.producer_id != self.producer_id or after.producer_epoch >= self.producer_epoch
        return after

    def initialized(self, timeout_ms: int, now_ms: int, *, again: bool = False) -> Transaction:
        """For a producer that starts, in the next epoch; `again` for one that missed its response, in the same."""
        assert again or not self.is_exhausted
        assert timeout_ms > 0
        return self._become(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=self.producer_epoch + (0 if again else 1),
            timeout_ms=timeout_ms,
            partitions={},
            started_ms=NO_TIMESTAMP,
        )

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """For a producer that starts after the last epoch: a new producer id, starting at epoch 0."""
        assert producer_id not in (NO_PRODUCER_ID, self.producer_id)
        assert self.is_exhausted, "a producer id is used up to its last epoch"
        return self._become(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            partitions={},
            started_ms=NO_TIMESTAMP,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """The transaction continues, or starts, with these partitions as well."""
        return self._become(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | dict.fromkeys(partitions),  # type: ignore[operator]
            started_ms=now_ms if self.state.is_idle else self.started_ms,
            client_version=client_version,
        )

    def decided(self, commit: bool, client_version: int, now_ms: int, next_producer_id: int) -> Transaction:
        """The outcome is decided; from version 2 on that also bumps the epoch, if there is one left."""
        bump = 1 if client_version >= EPOCH_BUMPS and self.producer_epoch < EPOCH_MAX else 0
        assert not commit or self.state is TransactionState.ONGOING, "only an open transaction is committed"
        assert self.producer_epoch + bump < EPOCH_MAX or next_producer_id != NO_PRODUCER_ID or not commit
        return self._become(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + bump,
            next_producer_id=next_producer_id,
            started_ms=now_ms if self.state.is_idle else self.started_ms,
            client_version=client_version,
        )

    def fenced(self, cluster_version: int, now_ms: int) -> Transaction:
        """The coordinator aborts it, and fences the producer with a higher epoch, whatever its version."""
        raised = self if cluster_version >= EPOCH_BUMPS else replace(self, producer_epoch=self.producer_epoch + 1)
        assert raised.producer_epoch >= self.producer_epoch
        return raised.decided(False, min(cluster_version, EPOCH_BUMPS), now_ms, NO_PRODUCER_ID)

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        rotates = self.next_producer_id != NO_PRODUCER_ID
        return self._become(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            producer_epoch=0 if rotates else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions={},
        )

    def record(self, cluster_version: int) -> Record:
        """Its record, in a version that all brokers of the cluster can read."""
        flexible = cluster_version >= FLEXIBLE_RECORDS or self.client_version >= EPOCH_BUMPS
        value = TransactionLogValue(
            self.producer_id,
            previous_producer_id=self.previous_producer_id if flexible else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if flexible else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is TransactionState.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version if flexible else 0,
        )
        return Record(TransactionLogKey(self.transactional_id), value, 1 if flexible else 0)

    @classmethod
    def from_record(cls, transactional_id: str, value: TransactionLogValue) -> Transaction:
        """The transaction in a record; raises ProtocolError for a state of a later version."""
        if value.transaction_status not in KNOWN_STATES:
            raise ProtocolError(f"{transactional_id} is in an unknown state {value.transaction_status}")
        return cls(
            transactional_id,
            value.producer_id,
            value.transaction_timeout_ms,
            value.transaction_last_update_timestamp_ms,
            value.producer_epoch,
            value.previous_producer_id,
            value.next_producer_id,
            TransactionState(value.transaction_status),
            {
                TopicPartition(topic, partition): None
                for topic, partitions in value.transaction_partitions or ()
                for partition in partitions
            },
            value.transaction_start_timestamp_ms,
            value.client_transaction_version,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions grouped by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    return [PartitionsSchema(topic, indexes) for topic, indexes in by_topic(partitions).items()]
