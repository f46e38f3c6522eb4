"""Turns a consumer's messages into records, skipping corrupt ones, so that these do not block all that follow."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from penstock.gateway.kafka.records import ReadRecord, record_of

UNREADABLE = {"_BAD_COMPRESSION", "_BAD_MSG"}
# Errors that librdkafka recovers from, and the end of a partition.
PASSING = {"_PARTITION_EOF", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "COORDINATOR_LOAD_IN_PROGRESS"}


class RecordConverter:
    """Converts the messages of one consumer. librdkafka alone would retry corrupt records forever."""

    def __init__(self, consumer: Consumer, record_bytes_max: int, *, has_group: bool = False) -> None:
        """librdkafka looks up every consumer's group, even if it only reads; with `has_group` its errors count."""
        self._passing = PASSING if has_group else PASSING | {"GROUP_AUTHORIZATION_FAILED"}
        self._consumer = consumer
        self._record_bytes_max = record_bytes_max
        self._skipped: dict[tuple[str, int], int] = {}

    def record(self, message: Message) -> ReadRecord | None:
        """The record of a message; a placeholder with the reason if it is corrupt or too large.

        None for transient errors; raises KafkaException for all others.
        """
        error = message.error()
        if error is None:
            return record_of(message, self._record_bytes_max)
        if error.name() in UNREADABLE:
            return self._skip(message, f"it cannot be decoded: {error.str()}")
        if error.name() in self._passing or error.retriable():
            return None
        raise KafkaException(error)

    def _skip(self, message: Message, why: str) -> ReadRecord:
        partition = (message.topic() or "", message.partition() or 0)
        # The error repeats the batch's first offset, although the batch may hold many records.
        offset = max(message.offset() or 0, self._skipped.get(partition, -1) + 1)
        self._skipped[partition] = offset
        self._consumer.seek(TopicPartition(*partition, offset + 1))
        return ReadRecord(*partition, offset, 0, None, None, [], why)
