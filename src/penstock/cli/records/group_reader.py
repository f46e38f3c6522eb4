"""`penstock consume --group`: records as a member of a group gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.client import client_settings, explain
from penstock.cli.options import Connection

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

BATCH_RECORDS = 1000
POLL_S = 0.25
COMMIT_INTERVAL_MS = 1000


class GroupReader:
    """A member of a group that reads one topic.

    At least once: an offset is committed only after its record has reached standard output, each second, before
    partitions are given away, and at the end. A group that cannot be joined is a CommandFailure.
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
        from confluent_kafka import Consumer, KafkaException

        settings = {
            "group.id": group_id,
            # librdkafka commits what `printed` has stored, and nothing else.
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
        # Partitions that are ours and have more to give; None until the group has shared them out.
        self._left: set[int] | None = None
        self._unstored: dict[int, Message] = {}
        self.idle = True
        try:
            self._consumer: Consumer = Consumer(client_settings(connection, **settings))
            self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        except KafkaException as error:
            raise explain(error.args[0], "librdkafka refuses these settings") from error

    def messages(self, count: int | None) -> Iterator[Message]:
        """The records that fall to this member, at most `count`."""
        given = 0
        while (count is None or given < count) and not (self._exit_at_end and self._left == set()):
            wanted = BATCH_RECORDS if count is None else min(BATCH_RECORDS, count - given)
            batch = self._consumer.consume(wanted, 0)
            if not batch:
                # `consume` waits for a full batch; a record that comes alone is shown at once.
                arrived = self._consumer.poll(POLL_S)
                batch = [arrived] if arrived is not None else []
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
        """What was given so far may be committed."""
        from confluent_kafka import KafkaException

        for message in self._unstored.values():
            try:
                self._consumer.store_offsets(message=message)
            except KafkaException as error:
                # The partition was given away meanwhile: its new owner reads the record again.
                if error.args[0].name() != "_STATE":
                    raise explain(error.args[0], self._what) from error
        self._unstored.clear()

    def close(self) -> None:
        """Commit and leave the group."""
        self._consumer.close()
