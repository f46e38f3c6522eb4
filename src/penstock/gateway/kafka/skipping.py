"""Reading past records that cannot be unpacked, so that one of them does not keep all that follow from being read."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

from penstock.gateway.kafka.records import ReadRecord

UNREADABLE = {"_BAD_COMPRESSION", "_BAD_MSG"}


class Skipper:
    """Skips for one consumer. Without it librdkafka would ask for the same batch for ever."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._skipped: dict[tuple[str, int], int] = {}

    def past(self, message: Message) -> ReadRecord | None:
        """A record that stands for one that cannot be unpacked, which is skipped; None where the error is another."""
        error = message.error()
        if error is None or error.name() not in UNREADABLE:
            return None
        place = (message.topic() or "", message.partition() or 0)
        # The error names the batch's first offset again and again, though it may hold many.
        offset = max(message.offset() or 0, self._skipped.get(place, -1) + 1)
        self._skipped[place] = offset
        self._consumer.seek(TopicPartition(*place, offset + 1))
        return ReadRecord(*place, offset, 0, None, None, [], f"it cannot be unpacked: {error.str()}")
