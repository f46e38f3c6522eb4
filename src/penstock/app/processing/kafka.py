"""Sources and sinks on a real broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaException, TopicPartition

from penstock.app.context import Message
from penstock.app.processing.key_queue import Partition
from penstock.app.processing.outbox import COMMIT_BACKOFF_S, COMMIT_TRIES, Outbox
from penstock.app.processing.progress import Ranges, decode_ranges
from penstock.app.processing.share_group import KAFKA_DEFAULT_LIMITS, prepare_share_group
from penstock.app.processing.transport import Outcomes, Position, ShareLimits
from penstock.app.subscription import Subscription
from penstock.client.application.admin import Admin
from penstock.client.application.connection import Connection
from penstock.client.application.consumer import REQUEST_TIMEOUT_S, consumer_properties
from penstock.client.application.errors import ADVICE, ConnectionFailed, PenstockError, explained, explaining_wire
from penstock.client.application.producer import Producer
from penstock.client.application.records import Record
from penstock.client.application.share import ShareConsumer
from penstock.client.cluster import ClusterClient
from penstock.client.failures import NoAnswer
from penstock.client.operations.groups import committed_offsets
from penstock.client.operations.offsets import LATEST
from penstock.client.operations.routing import Refused, TryAgain
from penstock.model.errors import ApiError
from penstock.model.ids import TopicPartition as PartitionId
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

STALE_EPOCH = "STALE_MEMBER_EPOCH"
LOST_LOCK = "INVALID_RECORD_STATE"
REPLY_POLL_S = 0.25
# librdkafka fetches a share group's records from one broker at a time: a broker without records delays the others.
SHARE_WAIT_MS = 100
# Replies are read as they arrive, or never.
REPLY_RETENTION_MS = 3_600_000

logger = logging.getLogger("penstock.app")


class Membership(NamedTuple):
    """The member whose offsets a transaction commits, as of the last read.

    `revocations` counts revocations: positions from before a revocation must not be committed with a later membership's
    metadata, since other members may already process these partitions.
    """

    group_metadata: object
    revocations: int


class KafkaSource:
    """A member of a consumer group. `knows_ends` is for tests, which check whether everything has been read."""

    def __init__(self, connection: Connection, subscription: Subscription, *, knows_ends: bool = False) -> None:
        settings = consumer_properties(connection, subscription.group, subscription.start, "consumer", None)
        self._admin: Admin | None = None
        if knows_ends:
            settings |= {"enable.partition.eof": True, "fetch.wait.max.ms": 20}
            self._admin = Admin(connection)
        self.raw: RawConsumer = RawConsumer(settings)
        self._topics = list(subscription.topics)
        self._ends: dict[Partition, int] = {}
        # The ends that the last read reached. A caller that reads again has taken over the records before them.
        self._reached: dict[Partition, int] = {}
        self._partitions: set[Partition] = set()
        self._is_closing = False
        self._revocations = 0
        # Read in the reader's thread: elsewhere librdkafka would wait for the reader, and block all threads meanwhile.
        self.membership = Membership(None, 0)
        self._assigned: Callable[[dict[Partition, Ranges]], None]
        self._revoked: Callable[[list[Partition]], None]

    def open(
        self, assigned: Callable[[dict[Partition, Ranges]], None], revoked: Callable[[list[Partition]], None]
    ) -> None:
        """Join the group."""
        self._assigned, self._revoked = assigned, revoked
        self.raw.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        """Return messages as soon as there is one."""
        self._ends |= self._reached
        self._reached = {}
        first = self.raw.poll(timeout_s)
        messages = [] if first is None else [first, *self.raw.consume(max_records - 1, 0)]
        self.membership = Membership(self.raw.consumer_group_metadata(), self._revocations)
        if any(message.error() is not None for message in messages):
            return [message for message in messages if self._is_record(message)]
        return messages

    def pause(self, paused: bool) -> None:
        """Stop fetching, or resume."""
        (self.raw.pause if paused else self.raw.resume)(self.raw.assignment())

    def is_at_end(self) -> bool:
        """Whether every partition has been read to its current end."""
        assert self._admin is not None
        ends = {partition: end for topic in self._topics for partition, end in self._admin.offsets(topic).items()}
        return bool(self._partitions) and all(
            self._ends.get(partition, -1) >= ends.get(partition, 0) for partition in self._partitions
        )

    def commit_offsets(self, positions: Mapping[Partition, Position]) -> None:
        """Commit offsets. Runs in the reader's thread: elsewhere confluent-kafka waits for polls and rebalances."""
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                results = self.raw.commit(offsets=_topic_partitions(positions), asynchronous=False)
                break
            except KafkaException as error:
                # The member's epoch has changed with the group's: librdkafka requests the new one at once.
                if error.args[0].name() != STALE_EPOCH or attempt == COMMIT_TRIES:
                    raise explained(error.args[0], "offsets cannot be committed") from error
                time.sleep(COMMIT_BACKOFF_S)
        for result in results or ():
            if result.error is not None:
                raise explained(result.error, f"the offset of {result.topic}-{result.partition} cannot be committed")

    def close(self) -> None:
        """Leave the group. Callers commit before; assignments that arrive while closing are ignored."""
        self._is_closing = True
        self.raw.close()

    def _is_record(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.name() == "_PARTITION_EOF":
            self._reached[message.topic(), message.partition()] = message.offset()
        elif error.fatal() or (not error.retriable() and error.name() != "UNKNOWN_TOPIC_OR_PART"):
            raise explained(error, f"cannot read {', '.join(self._topics)}")
        return False

    def _on_assign(self, consumer: RawConsumer, partitions: list[TopicPartition]) -> None:
        if self._is_closing:
            return
        self._partitions |= {(each.topic, each.partition) for each in partitions}
        committed = consumer.committed(partitions, timeout=REQUEST_TIMEOUT_S) if partitions else []
        for each in committed:
            if each.error is not None:
                raise explained(each.error, f"the commit of {each.topic}-{each.partition} cannot be read")
        self._assigned({(each.topic, each.partition): decode_ranges(each.offset, each.metadata) for each in committed})

    def _on_revoke(self, _: RawConsumer, topic_partitions: list[TopicPartition]) -> None:
        partitions = [(each.topic, each.partition) for each in topic_partitions]
        self._partitions -= set(partitions)
        for partition in partitions:
            self._ends.pop(partition, None)
            self._reached.pop(partition, None)
        if partitions and not self._is_closing:
            self._revoked(partitions)
        self._revocations += 1


class KafkaSink:
    """Sends messages and commits offsets for a source; with a `transactional_id`, exactly once."""

    def __init__(
        self, connection: Connection, source: KafkaSource, subscription: Subscription, transactional_id: str | None
    ) -> None:
        self._source = source
        self._is_exact = transactional_id is not None
        self._outbox = Outbox(connection, transactional_id, own_topics(subscription))

    def send(self, messages: Sequence[Message]) -> None:
        """Put messages into the producer's buffer."""
        self._outbox.send(messages)

    def commit(self, messages: Sequence[Message], positions: Mapping[Partition, Position]) -> None:
        """Store messages; exactly once, with the offsets in one transaction."""
        if self._is_exact:
            first = self._source.membership

            def group_metadata() -> object:
                now = self._source.membership
                return (now if now.revocations == first.revocations else first).group_metadata

            self._outbox.commit(messages, _topic_partitions(positions), group_metadata)
        else:
            self._outbox.send(messages)
            self._outbox.flush()

    def close(self) -> None:
        """Close the producer."""
        self._outbox.close()


class ShareSource:
    """A member of a share group, and the sink of its handlers' messages. Tests, which control time, unset `has_pauses`.

    It acquires no more records than `read` requests, since records that wait here are locked for other members.
    librdkafka fixes this number for a consumer's lifetime: for another number, another consumer joins.
    """

    def __init__(self, connection: Connection, subscription: Subscription, *, has_pauses: bool = True) -> None:
        self._connection = connection
        self._subscription = subscription
        self._group = subscription.group
        self._has_pauses = has_pauses
        self._limits = KAFKA_DEFAULT_LIMITS
        self._records_max = 0
        self._consumer: ShareConsumer[bytes] | None = None
        self._outbox = Outbox(connection, None, own_topics(subscription))

    def open(self) -> None:
        """Make sure that the group has its settings. There is no assignment: members share all partitions."""
        self._limits = prepare_share_group(self._connection, self._subscription, has_pauses=self._has_pauses)

    def limits(self) -> ShareLimits:
        """The group's limits, once it is open."""
        return self._limits

    def read(self, max_records: int, timeout_s: float) -> list[object]:
        """Return messages as soon as there is one. Those of the read before must be acknowledged."""
        if self._consumer is None or (self._records_max != max_records and not self._consumer.has_buffered):
            self._join(max_records)
        assert self._consumer is not None
        return [record.message for record in self._consumer.poll_many(max_records, timeout_s)]

    def is_at_end(self) -> bool:
        """Whether the group has no lag."""
        return share_lag(self._connection, self._group) == 0

    def store(self, messages: Sequence[Message]) -> None:
        """Store messages; returns when they are durable."""
        self._outbox.send(messages)
        self._outbox.flush()

    def acknowledge(self, outcomes: Outcomes) -> None:
        """Acknowledge records with their outcomes."""
        assert self._consumer is not None
        for message, outcome in outcomes:
            self._consumer.acknowledge(Record(message), outcome)  # type: ignore[arg-type]
        try:
            self._consumer.commit_offsets()
        except PenstockError as error:
            if error.code != LOST_LOCK:
                raise
            advice = "raise the group's share.record.lock.duration.ms, or do less in one call"
            logger.warning(
                "%s took too long, so its records are delivered again (try: %s)", self._subscription.name, advice
            )

    def close(self) -> None:
        """Leave the group: records that are not acknowledged are delivered to other members."""
        try:
            self._outbox.close()
        finally:
            if self._consumer is not None:
                self._consumer.close()

    def _join(self, max_records: int) -> None:
        if self._consumer is not None:
            self._consumer.close()
        properties = {"max.poll.records": max_records, "fetch.wait.max.ms": SHARE_WAIT_MS}
        self._consumer = ShareConsumer(self._connection, group=self._group, properties=properties)
        self._records_max = max_records
        self._consumer.subscribe(list(self._subscription.topics))


class KafkaReplies:
    """Requests to a cluster, and the replies that come from it. See `requests.Replies`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_closed = threading.Event()
        self._producer: Producer
        self._reader: threading.Thread

    def open(self, topic: str, received: Callable[[object], None]) -> None:
        """Read a topic from its current end on; it is created if it does not exist."""
        with Admin(self._connection) as admin:
            admin.create_topic(topic, 1, config={"retention.ms": str(REPLY_RETENTION_MS)}, exist_ok=True)
            ends = admin.offsets(topic)
        # Without a group: every process reads all replies. Starting at known ends, it misses none from now on.
        consumer = RawConsumer(consumer_properties(self._connection, None, "latest", "consumer", None))
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in ends.items()])
        self._producer = Producer(self._connection)
        self._reader = threading.Thread(
            target=self._read, args=(consumer, received), name="penstock-replies", daemon=True
        )
        self._reader.start()

    def send(self, message: Message) -> None:
        """Store a request; returns when it is durable."""
        self._producer.deliver(message.topic, message.key, message.value, headers=message.headers)

    def close(self) -> None:
        """Stop receiving."""
        self._is_closed.set()
        self._reader.join()
        self._producer.close()

    def _read(self, consumer: RawConsumer, received: Callable[[object], None]) -> None:
        while not self._is_closed.is_set():
            message = consumer.poll(REPLY_POLL_S)
            if message is not None and message.error() is None:
                received(message)
        consumer.close()


def own_topics(subscription: Subscription) -> frozenset[str]:
    """The topics that a subscription names itself; its records may choose others."""
    letters = {subscription.policy.dead_letter_topic(topic) for topic in subscription.topics}
    return frozenset(filter(None, {subscription.publish, *letters}))


def _topic_partitions(positions: Mapping[Partition, Position]) -> list[TopicPartition]:
    return [TopicPartition(*partition, offset, metadata) for partition, (offset, metadata) in positions.items()]


def done_ahead(connection: Connection, group: str) -> dict[Partition, int]:
    """How many records past its committed offset a group has finished, by partition: they do not count as lag."""
    timeout_s = REQUEST_TIMEOUT_S
    with (
        explaining_wire(f"the offsets of {group} cannot be read"),
        ClusterClient(connection.wire(), timeout_s=timeout_s, patience_s=timeout_s) as client,
    ):
        found = client.run(committed_offsets, [group])[group]
        if isinstance(found, Refused):
            raise found
    return {
        partition: sum(last - first + 1 for first, last in decode_ranges(each.offset, each.metadata))
        for partition, each in found.items()
    }


def share_lag(connection: Connection, group: str) -> int | None:
    """How many records a share group has not finished; None while it is unknown. Raises PenstockError."""
    try:
        return _share_lag(connection, group)
    except TryAgain:
        return None
    except (ApiError, NoAnswer) as error:
        raise ConnectionFailed(f"the lag of {group} cannot be read", str(error), ADVICE["_TRANSPORT"]) from error


def _share_lag(connection: Connection, group: str) -> int | None:
    wanted = [DescribeShareGroupOffsetsRequestGroup(group, None)]
    lag = 0
    with ClusterClient(connection.wire()) as client:
        (found,) = client.ask_coordinator(group, DescribeShareGroupOffsetsRequest(wanted)).groups
        for topic in found.topics:
            for each in topic.partitions:
                if each.error_code or each.start_offset < 0:
                    return None
                if each.lag >= 0:
                    lag += each.lag
                    continue
                # Nothing was ever delivered from this partition, so the broker has no count.
                partition = PartitionId(topic.topic_name, each.partition_index)
                lag += client.offsets({partition: LATEST})[partition] - each.start_offset
    return lag if found.topics else None
