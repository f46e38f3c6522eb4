"""Dead letters as they are read from their topics, and sent back to where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from penstock.cli.client import client_settings, explain, explaining
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.cli.records.consume import RangeReader
from penstock.cli.records.format import json_bytes
from penstock.cli.topic_queries import describe_topic, earliest_offsets, topic_configs
from penstock.core.share.dead_letters import Account, Headers, original_headers, read_account
from penstock.gateway.kafka.dead_letter_headers import TOPIC_NAMES, origin_of, without_reasons
from penstock.gateway.kafka.records import headers_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from penstock.cli.wire_client import WireClient

# Set on topics that take the dead letters of share groups.
ENABLED = "errors.deadletterqueue.group.enable"
FLUSH_S = 30.0
# The key decides.
ANY_PARTITION = -1
UNKNOWN = -1


class Letter(NamedTuple):
    """A dead letter: where it is, what it reports about its record, and what it has of it."""

    partition: int
    offset: int
    timestamp_ms: int
    account: Account
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def has_copy(self) -> bool:
        """Whether the record itself is in it."""
        return self.key is not None or self.value is not None or bool(self.headers)


def takes_letters(client: WireClient, topic: str) -> bool:
    """Whether a topic is for dead letters, by its settings or by its name."""
    if TOPIC_NAMES.search(topic):
        return True
    return any(config.name == ENABLED and config.value == "true" for config in topic_configs(client, topic))


def read_letters(
    connection: Connection,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
    on_other: Callable[[int, int], None] = lambda *_: None,
) -> Iterator[Letter]:
    """The dead letters in ranges of offsets, by partition, without those of aborted transactions.

    `on_other` is called with the partitions and offsets of other records, which are left out.
    """
    left = {number: (first, end) for number, (first, end) in ranges.items() if first < end}
    reader = RangeReader(connection, topic, {**left}, "read_committed")
    try:
        for message in reader.messages(None):
            letter = letter_of(message)
            if letter is not None:
                yield letter
            else:
                on_other(message.partition() or 0, message.offset() or 0)
    finally:
        reader.close()


def letter_of(message: Message) -> Letter | None:
    """A record of a topic for dead letters; None if it is none."""
    headers = headers_of(message) or []
    account, original = read_account(headers), original_headers(headers)
    if account is None:
        account, original = _account_of_others(headers), without_reasons(headers)
    if account is None:
        return None
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Letter(
        partition,
        offset,
        message.timestamp()[1],
        account,
        message.key(),
        message.value(),
        original,
    )


def _account_of_others(headers: Headers) -> Account | None:
    """What applications, pipelines, Kafka Streams, Connect and Spring say of a record."""
    origin = origin_of(headers)
    if origin is None or origin.topic is None or origin.partition is None or origin.offset is None:
        return None
    attempts = UNKNOWN if origin.attempts is None else origin.attempts
    place = origin.topic, origin.partition, origin.offset
    return Account(*place, origin.group or "", attempts, origin.reason or "", "", UNKNOWN)


def as_document(letter: Letter) -> dict[str, object]:
    """A dead letter for programs."""
    account = letter.account
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp_ms,
        "original": {
            "topic": account.topic,
            "partition": account.partition,
            "offset": account.offset,
            "timestamp": account.timestamp,
        },
        "group": account.group,
        "member": account.member,
        "delivery_count": account.delivery_count,
        "message": account.message,
        **json_bytes("key", letter.key),
        **json_bytes("value", letter.value),
        "headers": [{"name": name, **json_bytes("value", value)} for name, value in letter.headers],
    }


class Replay:
    """Sends records back, each to the partition it came from."""

    def __init__(self, connection: Connection, client: WireClient) -> None:
        # Letters without their records, whose records are not in their topics any more.
        self.gone = 0
        self._connection = connection
        self._client = client
        self._partitions: dict[str, int] = {}
        self._error: KafkaError | None = None
        settings = client_settings(connection, **{"enable.idempotence": True, "acks": "all"})
        with explaining("librdkafka rejects these settings"):
            self._producer = Producer(settings)

    def send(self, letter: Letter) -> bool:
        """Send one record back; False if there is none to send."""
        topic, partition, offset = letter.account[:3]
        key, value, headers = letter.key, letter.value, letter.headers
        if not letter.has_copy:
            found = self._original(topic, partition, offset)
            if found is None:
                self.gone += 1
                return False
            key, value, headers = found
        if partition >= self._partition_count(topic):
            partition = ANY_PARTITION
        given: list[tuple[str, str | bytes | None]] = [*headers]
        while True:
            try:
                self._producer.produce(topic, value, key, partition, self._delivered, headers=given)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
        return True

    def finish(self) -> None:
        """Wait until everything is delivered; raises CommandFailure if something is not."""
        left = self._producer.flush(FLUSH_S)
        if self._error is not None:
            raise explain(self._error, "not all records were sent back")
        if left:
            raise CommandFailure(f"{left} records were not acknowledged within {FLUSH_S:.0f} s")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._error = self._error or error

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(describe_topic(self._client, topic).partitions)
        return self._partitions[topic]

    def _original(
        self, topic: str, partition: int, offset: int
    ) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]] | None:
        first = earliest_offsets(self._client, topic, [partition])[partition]
        if offset < first:
            return None
        reader = RangeReader(self._connection, topic, {partition: (offset, offset + 1)}, "read_uncommitted")
        try:
            for message in reader.messages(1):
                return message.key(), message.value(), headers_of(message) or []
        finally:
            reader.close()
        return None
