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
from penstock.app.lines.lane import Partition
from penstock.app.lines.outbox import COMMIT_PAUSE_S, COMMIT_TRIES, Outbox
from penstock.app.lines.progress import Ranges, decode_ranges
from penstock.app.lines.share_group import KAFKAS_LIMITS, prepare_share_group
from penstock.app.lines.transport import Outcomes, Position, ShareLimits
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
# librdkafka asks one broker at a time for records of a share group: one that has none holds up those that have.
SHARE_WAIT_MS = 100
# Replies are read when they come, or never.
REPLY_RETENTION_MS = 3_600_000

logger = logging.getLogger("penstock.app")


class Membership(NamedTuple):
    """What a transaction says about the member whose positions it holds, as of the last read.

    `losses` counts how often partitions were taken away: positions from before must not be stored in the name of a
    later membership, since others may have begun with these partitions.
    """

    group_metadata: Any
    losses: int


class KafkaSource:
    """A member of a consumer group. `knows_ends` is for tests, which ask whether everything has been read."""

    def __init__(self, connection: Connection, subscription: Subscription, *, knows_ends: bool = False) -> None:
        settings = consumer_properties(connection, subscription.group, subscription.start, "consumer", None)
        self._admin: Admin | None = None
        if knows_ends:
            settings |= {"enable.partition.eof": True, "fetch.wait.max.ms": 20}
            self._admin = Admin(connection)
        self.raw: RawConsumer = RawConsumer(settings)
        self._topics = list(subscription.topics)
        self._ends: dict[Partition, int] = {}
        # Those that the last read came to. Whoever reads again has taken what was before them.
        self._reached: dict[Partition, int] = {}
        self._places: set[Partition] = set()
        self._is_closing = False
        self._losses = 0
        # Asked for in the reader's thread: elsewhere librdkafka would wait for the reader, and all threads with it.
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
        """Messages, as soon as there is one."""
        self._ends |= self._reached
        self._reached = {}
        first = self.raw.poll(timeout_s)
        messages = [] if first is None else [first, *self.raw.consume(max_records - 1, 0)]
        self.membership = Membership(self.raw.consumer_group_metadata(), self._losses)
        if any(message.error() is not None for message in messages):
            return [message for message in messages if self._is_record(message)]
        return messages

    def pause(self, paused: bool) -> None:
        """Stop fetching, or go on."""
        (self.raw.pause if paused else self.raw.resume)(self.raw.assignment())

    def is_at_end(self) -> bool:
        """Whether every partition has been read to its present end."""
        assert self._admin is not None
        ends = {place: end for topic in self._topics for place, end in self._admin.offsets(topic).items()}
        return bool(self._places) and all(self._ends.get(place, -1) >= ends.get(place, 0) for place in self._places)

    def commit_offsets(self, positions: Mapping[Partition, Position]) -> None:
        """Commit. In the reader's thread: elsewhere confluent-kafka waits until nobody polls or handles a rebalance."""
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                results = self.raw.commit(offsets=_places(positions), asynchronous=False)
                break
            except KafkaException as error:
                # The member's epoch has changed with the group's: librdkafka asks for it at once.
                if error.args[0].name() != STALE_EPOCH or attempt == COMMIT_TRIES:
                    raise explained(error.args[0], "offsets cannot be committed") from error
                time.sleep(COMMIT_PAUSE_S)
        for result in results or ():
            if result.error is not None:
                raise explained(result.error, f"the offset of {result.topic}-{result.partition} cannot be committed")

    def close(self) -> None:
        """Leave the group. What is done was committed before; assignments on the way out mean nothing."""
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
        self._places |= {(each.topic, each.partition) for each in partitions}
        committed = consumer.committed(partitions, timeout=REQUEST_TIMEOUT_S) if partitions else []
        self._assigned({(each.topic, each.partition): decode_ranges(each.offset, each.metadata) for each in committed})

    def _on_revoke(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._places -= set(places)
        for place in places:
            self._ends.pop(place, None)
            self._reached.pop(place, None)
        if places and not self._is_closing:
            self._revoked(places)
        self._losses += 1


class KafkaSink:
    """Sends and commits for a source; with a `transactional_id` exactly once."""

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

            def group_metadata() -> Any:
                now = self._source.membership
                return (now if now.losses == first.losses else first).group_metadata

            self._outbox.commit(messages, _places(positions), group_metadata)
        else:
            self._outbox.send(messages)
            self._outbox.flush()

    def close(self) -> None:
        """Close the producer."""
        self._outbox.close()


class ShareSource:
    """A member of a share group, and the sink of what its handlers send. `has_pauses` is not for tests, which own time.

    It takes no more records than it is asked for, since what waits here is locked for others. librdkafka knows this
    number for a consumer's whole life: with another one, another consumer joins.
    """

    def __init__(self, connection: Connection, subscription: Subscription, *, has_pauses: bool = True) -> None:
        self._connection = connection
        self._subscription = subscription
        self._group = subscription.group
        self._has_pauses = has_pauses
        self._limits = KAFKAS_LIMITS
        self._records_max = 0
        self._consumer: ShareConsumer[bytes] | None = None
        self._outbox = Outbox(connection, None, own_topics(subscription))

    def open(self) -> None:
        """See that the group has its settings; its partitions are everybody's."""
        self._limits = prepare_share_group(self._connection, self._subscription, has_pauses=self._has_pauses)

    def limits(self) -> ShareLimits:
        """The group's limits."""
        return self._limits

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        """Messages, as soon as there is one. Those before must be acknowledged."""
        if self._consumer is None or (self._records_max != max_records and not self._consumer.has_buffered):
            self._join(max_records)
        assert self._consumer is not None
        return [record.message for record in self._consumer.poll_many(max_records, timeout_s)]

    def is_at_end(self) -> bool:
        """Whether the group has finished everything there is."""
        return share_lag(self._connection, self._group) == 0

    def store(self, messages: Sequence[Message]) -> None:
        """Store the messages."""
        self._outbox.send(messages)
        self._outbox.flush()

    def acknowledge(self, outcomes: Outcomes) -> None:
        """Tell the broker what became of the records."""
        assert self._consumer is not None
        for message, outcome in outcomes:
            self._consumer.acknowledge(Record(message), outcome)  # type: ignore[arg-type]
        try:
            self._consumer.commit_offsets()
        except PenstockError as error:
            if error.code != LOST_LOCK:
                raise
            advice = "raise the group's share.record.lock.duration.ms, or do less in one call"
            logger.warning("%s took too long, and others do it again (try: %s)", self._subscription.name, advice)

    def close(self) -> None:
        """Leave the group: what is not acknowledged goes to others."""
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

    def open(self, topic: str, received: Callable[[Any], None]) -> None:
        """Read a topic from its present end on; it is created if it does not exist."""
        with Admin(self._connection) as admin:
            admin.create_topic(topic, 1, config={"retention.ms": str(REPLY_RETENTION_MS)}, exist_ok=True)
            ends = admin.offsets(topic)
        # Not a group's: all processes read all replies. The ends are known, so that nothing that comes is missed.
        consumer = RawConsumer(consumer_properties(self._connection, None, "latest", "consumer", None))
        consumer.assign([TopicPartition(*place, offset) for place, offset in ends.items()])
        self._producer = Producer(self._connection)
        self._reader = threading.Thread(
            target=self._read, args=(consumer, received), name="penstock-replies", daemon=True
        )
        self._reader.start()

    def send(self, message: Message) -> None:
        """Store a request."""
        self._producer.deliver(message.topic, message.key, message.value, headers=message.headers)

    def close(self) -> None:
        """Receive no more."""
        self._is_closed.set()
        self._reader.join()
        self._producer.close()

    def _read(self, consumer: RawConsumer, received: Callable[[Any], None]) -> None:
        while not self._is_closed.is_set():
            message = consumer.poll(REPLY_POLL_S)
            if message is not None and message.error() is None:
                received(message)
        consumer.close()


def own_topics(subscription: Subscription) -> frozenset[str]:
    """The topics that a subscription names; its records may choose others."""
    letters = {subscription.policy.dead_letter_topic(topic) for topic in subscription.topics}
    return frozenset(filter(None, {subscription.publish, *letters}))


def _places(positions: Mapping[Partition, Position]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in positions.items()]


def done_ahead(connection: Connection, group: str) -> dict[Partition, int]:
    """How many records are done behind the ones that a group has committed up to: they are no lag."""
    timeout_s = REQUEST_TIMEOUT_S
    with (
        explaining_wire(f"the offsets of {group} cannot be read"),
        ClusterClient(connection.wire(), timeout_s=timeout_s, patience_s=timeout_s) as client,
    ):
        found = client.run(committed_offsets, [group])[group]
        if isinstance(found, Refused):
            raise found
    return {
        place: sum(last - first + 1 for first, last in decode_ranges(each.offset, each.metadata))
        for place, each in found.items()
    }


def share_lag(connection: Connection, group: str) -> int | None:
    """How many records a share group has not finished; None while that is not known. Raises PenstockError."""
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
                # Nothing was ever delivered from here, so nobody has counted.
                place = PartitionId(topic.topic_name, each.partition_index)
                lag += client.offsets({place: LATEST})[place] - each.start_offset
    return lag if found.topics else None
