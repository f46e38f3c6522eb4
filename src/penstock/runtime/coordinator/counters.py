"""Counts what coordinators decide, from the records they write."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.contract import Record
from penstock.core.transaction.states import TransactionState
from penstock.wire.messages.consumer_group_records import ConsumerGroupMetadataKey
from penstock.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey
from penstock.wire.messages.share_group_records import ShareGroupMetadataKey
from penstock.wire.messages.streams_group_records import StreamsGroupMetadataKey
from penstock.wire.messages.transaction_records import TransactionLogKey

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"


class GroupCounters:
    """Rebalances by protocol, and offsets: a classic group's new generation, a new epoch of the others."""

    __slots__ = ("_generations", "offset_commits", "offset_deletions", "rebalances")

    def __init__(self) -> None:
        self.rebalances = {CLASSIC: 0, CONSUMER: 0, SHARE: 0, STREAMS: 0}
        self.offset_commits = 0
        self.offset_deletions = 0
        self._generations: dict[str, int] = {}

    def count(self, records: Iterable[Record]) -> None:
        """Count records that are about to be written."""
        for key, value, _ in records:
            if isinstance(key, OffsetCommitKey):
                if value is None:
                    self.offset_deletions += 1
                else:
                    self.offset_commits += 1
            elif isinstance(key, GroupMetadataKey):
                self._count_generation(key.group, -1 if value is None or not value.members else value.generation)
            elif isinstance(key, ConsumerGroupMetadataKey) and value is not None:
                self.rebalances[CONSUMER] += 1
            elif isinstance(key, ShareGroupMetadataKey) and value is not None:
                self.rebalances[SHARE] += 1
            elif isinstance(key, StreamsGroupMetadataKey) and value is not None:
                self.rebalances[STREAMS] += 1

    def _count_generation(self, group: str, generation: int) -> None:
        if generation < 0:
            self._generations.pop(group, None)
        elif self._generations.get(group) != generation:
            self._generations[group] = generation
            self.rebalances[CLASSIC] += 1


class TransactionCounters:
    """Transactions by how they ended."""

    __slots__ = ("aborted", "committed")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0

    def count(self, records: Iterable[Record]) -> None:
        """Count records that are about to be written."""
        for key, value, _ in records:
            if isinstance(key, TransactionLogKey) and value is not None:
                state = value.transaction_status
                self.committed += state == TransactionState.COMPLETE_COMMIT
                self.aborted += state == TransactionState.COMPLETE_ABORT
