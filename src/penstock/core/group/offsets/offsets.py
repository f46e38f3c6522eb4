"""The committed offsets of a shard's groups, in memory.

`load`, `replay` and `end_transaction` are the only things that change them. Offsets that a transaction commits are
pending, by producer id, until its marker arrives: then they take effect, unless a commit written after them has already
replaced them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.core.group.offsets.record_codec import (
    decode_offset,
    decode_offset_key,
    encoded_group,
    encoded_topic,
    is_readable,
)
from penstock.core.kept_bytes import KeptBytes
from penstock.model.ids import NO_PRODUCER_ID, ZERO_UUID, TopicPartition, Uuid
from penstock.wire.messages.group_records import LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue
from penstock.wire.primitives import MalformedMessage

# How many commits of a partition are remembered, to tell a slow consumer from a stalled one.
HISTORY_LENGTH = 10

# What an offset takes in memory besides its texts, about.
OFFSET_BYTES = 100

# A commit's position does not matter once the whole log has been read.
NO_RECORD_OFFSET = -1
# A pending offset that a later commit has replaced, whatever becomes of its transaction.
OVERTAKEN = NO_RECORD_OFFSET - 1


class CommittedOffset(NamedTuple):
    """One partition's committed offset; `record_offset` is the commit's own offset in the coordinator's log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    record_offset: int
    topic_id: Uuid = ZERO_UUID


class Commit(NamedTuple):
    """A past commit, of which only the offset and the time matter."""

    offset: int
    timestamp_ms: int


class PartitionProgress(NamedTuple):
    """What a lag view needs: the committed offset, and the recent commits that this coordinator has seen."""

    committed: CommittedOffset
    history: tuple[Commit, ...]


StoredRecord = tuple[bytes, bytes | None]
_TopicOffsets = dict[str, dict[int, CommittedOffset]]


class Offsets:
    """Committed and pending offsets by group, topic and partition."""

    __slots__ = (
        "_by_group",
        "_history",
        "_kept",
        "_open_transactions",
        "_pending",
        "_stored",
        "_stored_bytes",
        "_stored_topics",
    )

    def __init__(self, kept: KeptBytes | None = None) -> None:
        self._kept = KeptBytes() if kept is None else kept
        # Only `_of` and `_put` access this, because a group's offsets may still be among the stored ones.
        self._by_group: dict[str, _TopicOffsets] = {}
        self._stored: dict[bytes, dict[bytes, bytes]] = {}
        # Noted as they are loaded: to look at all stored offsets again at the end would take too long at once.
        self._stored_topics: set[bytes] = set()
        # What of that is counted as kept.
        self._stored_bytes: dict[bytes, int] = {}
        self._history: dict[str, dict[TopicPartition, deque[Commit]]] = {}
        self._pending: dict[int, dict[str, _TopicOffsets]] = {}
        # Producer ids by group, in the order of their first commit.
        self._open_transactions: dict[str, dict[int, None]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """A partition's committed offset."""
        return self._of(group_id).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """A group's committed offsets by topic and partition."""
        return self._of(group_id)

    def group_ids(self) -> Iterator[str]:
        """The groups that have committed offsets."""
        yield from self._by_group
        yield from (
            group_id for encoded in self._stored if (group_id := encoded.decode(errors="replace")) not in self._by_group
        )

    def count(self) -> int:
        """How many offsets there are."""
        decoded = sum(len(partitions) for topics in self._by_group.values() for partitions in topics.values())
        return decoded + sum(map(len, self._stored.values()))

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for this partition."""
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open_transactions.get(group_id, ())
        )

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether any open transaction has offsets of the group."""
        return group_id in self._open_transactions

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Every partition the group has an offset for, pending ones included."""
        found: dict[TopicPartition, None] = {}
        sources = [self._of(group_id)]
        sources += [self._pending[producer].get(group_id, {}) for producer in self._open_transactions.get(group_id, ())]
        for topics in sources:
            for topic, partitions in topics.items():
                found.update((TopicPartition(topic, partition), None) for partition in partitions)
        return list(found)

    def topics(self) -> set[str]:
        """Every topic that any group has an offset for, pending ones included; and some that none has any more."""
        found = {topic.decode(errors="replace") for topic in self._stored_topics}
        for by_group in (self._by_group, *self._pending.values()):
            for topics in by_group.values():
                found.update(topics)
        return found

    def groups_with_topics(self, topics: Collection[str]) -> list[str]:
        """The groups that have an offset for any of the topics, pending ones included.

        It goes through all offsets once, however many topics there are: thousands may be deleted together.
        """
        wanted = frozenset(topics)
        encoded_topics = frozenset(topic.encode() for topic in wanted)
        for encoded, stored in list(self._stored.items()):
            if any(encoded_topic(key) in encoded_topics for key in stored):
                self._unfold(encoded)
        found = {group_id: None for group_id, theirs in self._by_group.items() if not wanted.isdisjoint(theirs)}
        for pending in self._pending.values():
            found.update((group_id, None) for group_id, theirs in pending.items() if not wanted.isdisjoint(theirs))
        return list(found)

    def progress(self, group_id: str) -> dict[TopicPartition, PartitionProgress]:
        """A group's committed offsets with their recent history."""
        history = self._history.get(group_id, {})
        return {
            (key := TopicPartition(topic, partition)): PartitionProgress(
                committed, tuple(history.get(key) or (_commit(committed),))
            )
            for topic, partitions in self._of(group_id).items()
            for partition, committed in partitions.items()
        }

    def load(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """Take in stored records in order, without decoding them; returns those that are not plain offset commits.

        They are decoded when their group is first used. Records of transactions, and their markers, go through `replay`
        and `end_transaction` in between, in the order of the log.
        """
        rest = []
        stored = self._stored
        for record in records:
            key, value = record
            encoded = encoded_group(key)
            if not encoded or (value is not None and not is_readable(value)):
                rest.append(record)
                continue
            if self._open_transactions or (value is None and self._by_group):
                self._load_after_transactions(key, value)
            if value is not None:
                self._stored_topics.add(encoded_topic(key))
                if encoded in stored:
                    stored[encoded][key] = value
                else:
                    stored[encoded] = {key: value}
            elif encoded in stored:
                stored[encoded].pop(key, None)
                if not stored[encoded]:
                    del stored[encoded]
        return rest

    def count_stored(self) -> None:
        """Count what was loaded and is not decoded yet, once all is loaded."""
        for encoded, stored in self._stored.items():
            size = self._stored_bytes[encoded] = sum(map(len, stored)) + sum(map(len, stored.values()))
            self._kept.add(encoded.decode(errors="replace"), size)

    def _load_after_transactions(self, encoded_key: bytes, value: bytes | None) -> None:
        """Apply what a loaded record means for offsets of transactions before it."""
        try:
            group_id, topic, partition = decode_offset_key(encoded_key)
        except MalformedMessage:
            return
        if value is None:
            self._remove(group_id, topic, partition)
            return
        for producer_id in self._open_transactions.get(group_id, ()):
            pending = self._pending[producer_id].get(group_id, {}).get(topic, {})
            if partition in pending:
                pending[partition] = pending[partition]._replace(record_offset=OVERTAKEN)

    def _of(self, group_id: str) -> _TopicOffsets:
        """A group's offsets, decoded on first use."""
        if self._stored:
            self._unfold(group_id.encode())
        return self._by_group.get(group_id, {})

    def _unfold(self, encoded: bytes) -> None:
        self._kept.add(encoded.decode(errors="replace"), -self._stored_bytes.pop(encoded, 0))
        for key, value in self._stored.pop(encoded, {}).items():
            try:
                self.replay(*decode_offset(key, value), NO_RECORD_OFFSET)
            except MalformedMessage:
                # The log's checksums are right, so it was written like this; there is nothing in it that we could use.
                continue

    def replay(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply one record; with a producer id it is pending until its transaction ends."""
        group_id, topic, partition = key
        if value is None:
            self._remove(group_id, topic, partition)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            record_offset,
            value.topic_id,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(group_id, topic, partition, committed)
            return
        pending = self._pending.setdefault(producer_id, {}).setdefault(group_id, {}).setdefault(topic, {})
        self._count(group_id, topic, pending.get(partition), committed)
        pending[partition] = committed
        self._open_transactions.setdefault(group_id, {})[producer_id] = None

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._of(group_id)
        partitions = self._by_group.setdefault(group_id, {}).setdefault(topic, {})
        previous = partitions.get(partition)
        partitions[partition] = committed
        self._count(group_id, topic, previous, committed)
        if previous is None:
            return
        # A history starts with the second commit, so that partitions which are only loaded have none.
        history = self._history.setdefault(group_id, {})
        commits = history.get(TopicPartition(topic, partition))
        if commits is None:
            commits = history[TopicPartition(topic, partition)] = deque((_commit(previous),), HISTORY_LENGTH)
        commits.append(_commit(committed))

    def _count(self, group_id: str, topic: str, old: CommittedOffset | None, new: CommittedOffset | None) -> None:
        change = 0 if new is None else OFFSET_BYTES + len(topic) + len(new.metadata)
        if old is not None:
            change -= OFFSET_BYTES + len(topic) + len(old.metadata)
        if change:
            self._kept.add(group_id, change)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction's marker: its pending offsets take effect, or are dropped."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            open_transactions = self._open_transactions[group_id]
            del open_transactions[producer_id]
            if not open_transactions:
                del self._open_transactions[group_id]
            for topic, partitions in topics.items():
                for partition, pending in partitions.items():
                    self._count(group_id, topic, pending, None)
                    if committed:
                        self._settle(group_id, topic, partition, pending)

    def _settle(self, group_id: str, topic: str, partition: int, pending: CommittedOffset) -> None:
        present = self.get(group_id, topic, partition)
        if present is None or pending.record_offset >= present.record_offset:
            self._put(group_id, topic, partition, pending)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        self._of(group_id)
        self._count(group_id, topic, _discard(self._by_group, group_id, topic, partition), None)
        history = self._history.get(group_id)
        if history is not None:
            history.pop(TopicPartition(topic, partition), None)
            if not history:
                del self._history[group_id]
        # A transaction stays open even if none of its offsets is left: its marker is still to come.
        for producer_id in self._open_transactions.get(group_id, ()):
            pending = self._pending[producer_id].get(group_id, {})
            self._count(group_id, topic, pending.get(topic, {}).pop(partition, None), None)


def _commit(committed: CommittedOffset) -> Commit:
    return Commit(committed.offset, committed.commit_timestamp_ms)


def _discard(by_group: dict[str, _TopicOffsets], group_id: str, topic: str, partition: int) -> CommittedOffset | None:
    """Remove an offset; returns it if there was one."""
    topics = by_group.get(group_id)
    partitions = None if topics is None else topics.get(topic)
    if topics is None or partitions is None:
        return None
    found = partitions.pop(partition, None)
    if found is not None and not partitions:
        del topics[topic]
        if not topics:
            del by_group[group_id]
    return found
