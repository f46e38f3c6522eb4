"""A consumer group member that callers control over HTTP.

Its methods block and run in a worker thread, one at a time; `idle` is called now and then without requests, so
that the group can rebalance without waiting for this member.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from penstock.gateway.kafka.corrupt_records import RecordConverter
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.kafka.topic_pattern import posix_pattern

STEP_S = 0.25
COMMITTED_TIMEOUT_S = 10.0
# How long a newly assigned partition may take until it can be seeked.
SEEK_TIMEOUT_S = 10.0
SEEK_STEP_S = 0.02
NO_NOTES: Mapping[tuple[str, int], str] = {}


class GroupConsumer:
    """A consumer, and the records that it has fetched but not returned."""

    def __init__(self, settings: dict[str, Any], record_bytes_max: int) -> None:
        self._consumer = Consumer(settings)
        self._converter = RecordConverter(self._consumer, record_bytes_max, has_group=True)
        self._buffer: deque[ReadRecord] = deque()
        # Start offsets of manually assigned partitions, until something has been read from them.
        self._assigned_offsets: dict[tuple[str, int], int] | None = None
        self._topics: list[str] | None = []

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics."""
        self._subscribe(topics)
        self._topics = topics

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to all topics that match, including those created later."""
        self._subscribe([posix_pattern(pattern)])
        self._topics = None

    def subscription(self) -> list[str]:
        """The subscribed topics; of those that match a pattern, the ones with partitions for this member."""
        if self._topics is not None:
            return self._topics
        return sorted({topic for topic, _ in self.assignment()})

    def unsubscribe(self) -> None:
        """Unsubscribe from everything."""
        self._consumer.unsubscribe()
        self._topics = []
        self._buffer.clear()

    def assign(self, partitions: list[tuple[str, int]]) -> None:
        """Assign partitions manually, outside the group's assignment."""
        self._topics, self._assigned_offsets = [], dict.fromkeys(partitions, OFFSET_INVALID)
        self._assign()
        self._buffer.clear()

    def assignment(self) -> list[tuple[str, int]]:
        """The assigned partitions."""
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def poll(self, records_max: int, bytes_max: int, timeout_s: float) -> list[ReadRecord]:
        """Return records as soon as there is one; none after the timeout."""
        records: list[ReadRecord] = []
        size = 0
        deadline = time.monotonic() + timeout_s
        while len(records) < records_max and size < bytes_max:
            if self._buffer:
                record: ReadRecord | None = self._buffer.popleft()
            else:
                left_s = 0.0 if records else deadline - time.monotonic()
                record = self._next(max(0.0, min(STEP_S, left_s)))
            if record is not None:
                if records and size + record.size > bytes_max:
                    self._buffer.appendleft(record)
                    break
                records.append(record)
                size += record.size
            elif records or time.monotonic() >= deadline:
                break
        return records

    def put_back(self, records: list[ReadRecord]) -> None:
        """Put back records from `poll`, unless their partition was revoked; the next `poll` returns them again."""
        assigned = set(self.assignment())
        kept = [record for record in records if (record.topic, record.partition) in assigned]
        self._buffer.extendleft(reversed(kept))

    def idle(self) -> None:
        """Let the group's protocol make progress."""
        assigned = self._consumer.assignment()
        if assigned:
            self._consumer.pause(assigned)
        record = self._next(0.0)
        if record is not None:
            self._buffer.append(record)
        assigned = self._consumer.assignment()
        if assigned:
            self._consumer.resume(assigned)

    def commit(
        self, offsets: list[tuple[str, int, int]] | None, notes: Mapping[tuple[str, int], str] = NO_NOTES
    ) -> None:
        """Commit the next offsets to read; without any, this consumer's positions. `notes` are stored as metadata."""
        if offsets is None:
            positions = [
                position
                for position in self._consumer.position(self._consumer.assignment())
                if (position.offset or -1) >= 0
            ]
            unread: dict[tuple[str, int], int] = {}
            for record in reversed(self._buffer):
                unread[record.topic, record.partition] = record.offset
            offsets = [
                (position.topic, position.partition, unread.get((position.topic, position.partition), position.offset))
                for position in positions
            ]
        if offsets:
            wanted = [
                TopicPartition(topic, partition, offset, notes.get((topic, partition), ""))
                for topic, partition, offset in offsets
            ]
            for each in self._consumer.commit(offsets=wanted, asynchronous=False) or []:
                if each.error is not None:
                    raise KafkaException(each.error)

    def committed(self, partitions: list[tuple[str, int]]) -> list[tuple[str, int, int, str]]:
        """Topic, partition, committed offset (negative if there is none) and metadata."""
        wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
        found = self._consumer.committed(wanted, timeout=COMMITTED_TIMEOUT_S)
        return [(each.topic, each.partition, each.offset, each.metadata or "") for each in found]

    def seek(self, offsets: list[tuple[str, int, int]]) -> None:
        """Seek in assigned partitions."""
        moved = {(topic, partition): offset for topic, partition, offset in offsets}
        if self._assigned_offsets is not None:
            # librdkafka rejects a seek before it has started to fetch; a new assignment always works.
            for position in self._consumer.position(self._consumer.assignment()):
                if position.offset >= 0:
                    self._assigned_offsets[position.topic, position.partition] = position.offset
            self._assigned_offsets |= moved
            self._assign()
        else:
            for (topic, partition), offset in moved.items():
                self._seek_one(TopicPartition(topic, partition, offset))
        self._buffer = deque(record for record in self._buffer if (record.topic, record.partition) not in moved)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _assign(self) -> None:
        assigned = self._assigned_offsets or {}
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in assigned.items()])

    def _seek_one(self, position: TopicPartition) -> None:
        deadline = time.monotonic() + SEEK_TIMEOUT_S
        while True:
            try:
                self._consumer.seek(position)
                return
            except KafkaException as error:
                # A newly assigned partition is not being fetched yet.
                if error.args[0].code() != KafkaError._STATE or time.monotonic() >= deadline:
                    raise
            time.sleep(SEEK_STEP_S)

    def _subscribe(self, names: list[str]) -> None:
        self._assigned_offsets = None
        self._consumer.subscribe(names, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        self._buffer = deque(record for record in self._buffer if (record.topic, record.partition) not in gone)

    def _next(self, timeout_s: float) -> ReadRecord | None:
        message = self._consumer.poll(timeout_s)
        return None if message is None else self._converter.record(message)
