"""`penstock consume --group`: reads records as a member of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.client import client_settings, explain, explaining
from penstock.cli.options import Connection

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

BATCH_RECORDS = 1000
POLL_S = 0.25
COMMIT_INTERVAL_MS = 1000


def next_batch(consumer: Consumer, count: int | None) -> list[Message]:
    """The messages that are available, at most `count`; waits a moment for the first one."""
    # `consume` with a timeout would wait for a full batch, but a single record must be shown at once.
    batch = consumer.consume(BATCH_RECORDS if count is None else min(BATCH_RECORDS, count), 0)
    arrived = None if batch else consumer.poll(POLL_S)
    return batch if arrived is None else [arrived]


class GroupReader:
    """A group member that reads one topic.

    At least once: an offset is committed only after its record was written to standard output, every second, before
    partitions are revoked, and at the end. Raises CommandFailure if the group cannot be joined.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        group_id: str,
        offset_reset: str,
        isolation_level: str,
        exit_at_end: bool,
    ) -> None:
        from confluent_kafka import Consumer

        settings = {
            "group.id": group_id,
            # librdkafka commits the offsets that `printed` has stored, and nothing else.
            "enable.auto.commit": True,
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            "enable.auto.offset.store": False,
            "enable.partition.eof": exit_at_end,
            "auto.offset.reset": offset_reset,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 100,
        }
        self._what = f"cannot read {topic} with group {group_id}"
        self._exit_at_end = exit_at_end
        # Assigned partitions that are not at their end; None before the first assignment.
        self._left: set[int] | None = None
        self._unstored: dict[int, Message] = {}
        self.idle = True
        with explaining("librdkafka rejects these settings"):
            self._consumer: Consumer = Consumer(client_settings(connection, **settings))
            self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def messages(self, count: int | None) -> Iterator[Message]:
        """The records of this member's partitions, at most `count`; `idle` is true if no more are available yet."""
        given = 0
        while (count is None or given < count) and not (self._exit_at_end and self._left == set()):
            batch = next_batch(self._consumer, None if count is None else count - given)
            records = [message for message in batch if message.error() is None]
            for index, message in enumerate(records, 1):
                number = message.partition()
                assert number is not None
                self._unstored[number] = message
                self.idle = index == len(records)
                yield message
            given += len(records)
            for message in batch:
                self._heed(message)

    def _heed(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return
        number = message.partition()
        if error.name() == "_PARTITION_EOF":
            assert number is not None
            self._left = (self._left or set()) - {number}
        elif error.fatal() or error.name().endswith("AUTHORIZATION_FAILED"):
            raise explain(error, self._what)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002
        self._left = (self._left or set()) | {each.partition for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002
        self._left = (self._left or set()) - {each.partition for each in partitions}
        for each in partitions:
            self._unstored.pop(each.partition, None)

    def printed(self) -> None:
        """The records so far may be committed."""
        from confluent_kafka import KafkaException

        for message in self._unstored.values():
            try:
                self._consumer.store_offsets(message=message)
            except KafkaException as error:
                # The partition was revoked meanwhile: its new owner reads the record again.
                if error.args[0].name() != "_STATE":
                    raise explain(error.args[0], self._what) from error
        self._unstored.clear()

    def close(self) -> None:
        """Commit and leave the group."""
        self._consumer.close()
