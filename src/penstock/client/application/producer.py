"""`Producer`: sends records, idempotently and acknowledged by all in-sync replicas."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as RawProducer

from penstock.client.application.connection import Connection
from penstock.client.application.delivery import (
    DELIVERY_TIMEOUT_S,
    FAILURES_MAX,
    Failure,
    Spreader,
    encode_any,
    producer_properties,
)
from penstock.client.application.errors import (
    DeliveryFailed,
    PenstockError,
    ProducerFenced,
    TimedOut,
    TransactionAborted,
    explained,
    explaining,
)
from penstock.client.application.records import Headers, Stored
from penstock.client.application.serdes import plain_key, serde_of
from penstock.client.closing import Closing

if TYPE_CHECKING:
    from penstock.client.application.consumer import Consumer

OnDelivery = Callable[[PenstockError | None, Stored | None], None]

# Delivery reports are looked at this often, and after so many records that may have some.
POLL_S = 0.1
RECORDS_BETWEEN_POLLS = 500
METADATA_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.1
ONLY_FAILURES = "delivery.report.only.error"


class Producer(Closing):
    """Sends records to topics. Safe to share between threads; use it as a context manager, or call `close`.

    `send` puts a record into a buffer and returns; records are delivered in the background, retried for
    `delivery_timeout_s`, and stored once and in order (`acks=all`, idempotent). What could not be delivered is raised
    by a later `send`, by `flush` or by `close`: nothing is lost silently. Keys choose partitions as with Java's client.

    `value` is the type of values, or a serde; without one, text and bytes are sent as they are and anything else as
    JSON. `properties` are librdkafka's.

    >>> with Producer() as producer:
    ...     producer.send("orders", "alice", "1 tea")
    ...     producer.send("orders", "bob", {"item": "coffee", "amount": 2})
    """

    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        value: Any = None,
        transactional_id: str | None = None,
        transaction_timeout_s: float = 60.0,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        max_block_s: float = 60.0,
        compression: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        self.connection = Connection.of(connection)
        settings = producer_properties(self.connection, delivery_timeout_s, compression, properties)
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = int(transaction_timeout_s * 1000)
            settings["delivery.timeout.ms"] = int(min(delivery_timeout_s, transaction_timeout_s) * 1000)
        else:
            # Of a transaction's records, commit reports that they failed. Others are reported if they fail, which costs
            # nothing; reports of all that succeed cost a fifth, and start with the first that a caller requests.
            settings = {ONLY_FAILURES: True, "on_delivery": self._not_delivered} | settings
        settings["error_cb"] = self._error
        self._said = ""
        self._settings = settings
        self._earlier: RawProducer | None = None
        self._switching = threading.Lock()
        self._reports_all = not settings.get(ONLY_FAILURES)
        self._raw, self._produce = self._open()
        # By their own type, or by the type or serde that was given.
        self._encode = encode_any if value is None else serde_of(value).encode
        self._sent_as_is = frozenset((bytes, str)) if value is None else frozenset()
        # Whether a record is librdkafka's as it is: there is nothing to encode, and no failure to tell.
        self._is_plain = value is None
        self._max_block_s = max_block_s
        self._transaction_timeout_s = transaction_timeout_s
        self._unpolled = 0
        self._failures: list[Failure] = []
        self._failed = 0
        self._spreader = Spreader()
        self._partitions: dict[str, int] = {}
        self._is_initialized = False
        self._closed = threading.Event()
        self._poller = threading.Thread(target=self._poll_now_and_then, name="penstock-producer", daemon=True)
        self._poller.start()

    def send(
        self,
        topic: str,
        key: object = None,
        value: Any = None,
        headers: Headers | Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        spread: int = 1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Put a record into the buffer; waits up to `max_block_s` while the buffer is full.

        Records with the same key go to the same partition, in order. `spread` lets a key that is too frequent for one
        partition take turns over so many of them, where the order of its records does not matter.
        `on_delivery` is called in another thread with an error, or with where the record was stored.

        >>> with Producer() as producer:
        ...     producer.send("orders", "alice", "tea", headers={"trace": "1"})
        ...     producer.send("orders", "everybody", "tea", spread=3)
        """
        # Most records have nothing but a key and a value, and every check costs them a percent. For the same reason the
        # options can be given by position: Python takes twice as long to fill in those that cannot.
        if (
            headers is None
            and partition is None
            and on_delivery is None
            and spread == 1
            and timestamp_ms == 0
            and self._is_plain
        ):
            try:
                self._produce(topic, value, key)
            except TypeError:
                # librdkafka takes text and bytes.
                self._send_with(topic, key, value, None, None, 0, 1, None)
            except BufferError:
                self._wait_for_room(topic, key, value)
            except KafkaException as error:
                raise explained(error.args[0], f"a record for {topic} cannot be sent") from error
        else:
            self._send_with(topic, key, value, headers, partition, timestamp_ms, spread, on_delivery)

    def _send_with(
        self,
        topic: str,
        key: object,
        value: Any,
        headers: object,
        partition: int | None,
        timestamp_ms: int,
        spread: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        if key.__class__ is not str:
            key = plain_key(key)
        if value.__class__ not in self._sent_as_is:
            value = self._encode(value, topic)
        if spread != 1 and partition is None:
            partition = self._spreader.choose(key, self.partition_count(topic), spread)
        try:
            self._produce_with(topic, key, value, headers, partition, timestamp_ms, on_delivery)
        except BufferError:
            self._wait_for_room(topic, key, value, headers, partition, timestamp_ms, on_delivery)
        except KafkaException as error:
            raise explained(error.args[0], f"a record for {topic} cannot be sent") from error
        self._unpolled = unpolled = self._unpolled + 1
        if unpolled > RECORDS_BETWEEN_POLLS:
            self._unpolled = 0
            self._raw.poll(0)
        if self._failures:
            self._raise_failures()

    def send_many(self, topic: str, records: Iterable[tuple[Any, Any]]) -> int:
        """Put (key, value) pairs into the buffer; returns how many. The quickest way to send many.

        >>> with Producer() as producer:
        ...     producer.send_many("orders", [("alice", "tea"), ("bob", "coffee")])
        2
        """
        count = 0
        produce, send = self._produce, self.send
        for key, value in records:
            count += 1
            if self._is_plain:
                try:
                    produce(topic, value, key)
                    continue
                except (BufferError, TypeError):
                    # What has to wait, or to be encoded.
                    pass
                except KafkaException as error:
                    raise explained(error.args[0], f"a record for {topic} cannot be sent") from error
            send(topic, key, value)
            produce = self._produce
        return count

    def deliver(self, topic: str, key: Any = None, value: Any = None, **options: Any) -> Stored:
        """Send a record and wait until it is stored; returns where. Takes the options of `send`.

        >>> with Producer() as producer:
        ...     producer.deliver("orders", "alice", "tea").topic
        'orders'
        """
        outcome: list[tuple[PenstockError | None, Stored | None]] = []
        self.send(topic, key, value, on_delivery=lambda error, stored: outcome.append((error, stored)), **options)
        while not outcome:
            self._raw.poll(0.1)
        error, stored = outcome[0]
        if error is not None:
            raise error
        assert stored is not None
        return stored

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until every record is stored; raises DeliveryFailed for those that were not, TimedOut after the time.

        >>> with Producer() as producer:
        ...     producer.send("orders", "alice", "tea")
        ...     producer.flush()
        """
        left = self._raw.flush(timeout_s) + (self._earlier.flush(timeout_s) if self._earlier is not None else 0)
        self._raise_failures()
        if left:
            what = f"{left} records are not stored yet after {timeout_s:g} s"
            raise TimedOut(what, self._said or "no acknowledgement came", "flush again; they are still being sent")

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; remembered.

        >>> with Producer() as producer:
        ...     producer.partition_count("orders") >= 1
        True
        """
        if topic not in self._partitions:
            with explaining(f"the partitions of {topic} cannot be read"):
                found = self._raw.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
            if found.error is not None:
                raise explained(found.error, f"the partitions of {topic} cannot be read")
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]

    def partitions_of(self, topic: str, key: Any, spread: int = 1) -> list[int]:
        """The partitions that records with this key are in, when they are sent with this `spread`.

        >>> with Producer() as producer:
        ...     len(producer.partitions_of("orders", "alice"))
        1
        """
        return self._spreader.all(key, self.partition_count(topic), spread)

    @contextmanager
    def transaction(self, consumer: Consumer[Any] | None = None, timeout_s: float | None = None) -> Iterator[Producer]:
        """Everything sent inside counts together, or not at all. Needs a `transactional_id`.

        With a `consumer` its position is part of the transaction: exactly once from topic to topic. An exception aborts
        the transaction and sets the consumer back to its last committed position, so that the loop can continue.

        >>> with Producer(transactional_id="ship-1") as producer:
        ...     with producer.transaction():
        ...         producer.send("orders", "alice", "tea")
        ...         producer.send("shipments", "alice", "tea")
        """
        deadline = time.monotonic() + (self._transaction_timeout_s if timeout_s is None else timeout_s)
        self._begin(deadline)
        try:
            yield self
            self._raw.poll(0)
            positions = self._send_positions(consumer) if consumer is not None else []
            self._repeat(self._raw.commit_transaction, deadline)
            self._forget_failures()
            if consumer is not None:
                consumer._note_committed(positions)
        except ProducerFenced:
            raise
        except BaseException:
            self._abort(deadline)
            if consumer is not None:
                consumer.rewind()
            raise

    def send_offsets(self, positions: list[TopicPartition], group_metadata: object) -> None:
        """Make positions of a group part of the open transaction: what `transaction(consumer)` does at its end.

        >>> with Consumer(group="billing") as consumer, Producer(transactional_id="ship-3") as producer:
        ...     with producer.transaction():
        ...         producer.send_offsets(consumer.positions(), consumer.group_metadata())
        """
        if positions:
            deadline = time.monotonic() + self._transaction_timeout_s
            self._repeat(lambda left: self._raw.send_offsets_to_transaction(positions, group_metadata, left), deadline)

    def _send_positions(self, consumer: Consumer[Any]) -> list[TopicPartition]:
        revoked = consumer._take_uncommitted()
        if revoked:
            # Their next owner reads the records again: what was sent for them would count twice.
            what = f"{', '.join(f'{topic}-{partition}' for topic, partition in sorted(revoked))} was revoked meanwhile"
            raise TransactionAborted("the transaction is aborted", what, "read on, and run it again: none of it counts")
        positions = consumer.positions()
        self.send_offsets(positions, consumer.group_metadata())
        return positions

    def close(self, timeout_s: float = 30.0) -> None:
        """Deliver what is buffered, and close. Raises as `flush` does.

        >>> producer = Producer()
        >>> producer.send("orders", "alice", "tea")
        >>> producer.close()
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._poller.join()
        try:
            self.flush(timeout_s)
        finally:
            for raw in filter(None, (self._earlier, self._raw)):
                raw.close()

    def serve_reports(self, timeout_s: float) -> None:
        """Call `on_delivery` functions now, waiting so long for a first one; done by itself from time to time.

        >>> with Producer() as producer:
        ...     producer.serve_reports(0)
        """
        self._raw.poll(timeout_s)

    def _open(self) -> tuple[RawProducer, Callable[..., None]]:
        with explaining("the producer cannot start"):
            raw = RawProducer(self._settings)
        return raw, raw.produce

    def _report_all(self) -> None:
        """Go on with a producer that reports successes too, once everything before is stored."""
        with self._switching:
            if self._reports_all:
                return
            self.flush()
            self._settings[ONLY_FAILURES] = False
            # Another thread may just be sending with it: it is flushed and closed at the end.
            self._earlier = self._raw
            self._raw, self._produce = self._open()
            self._reports_all = True

    def _produce_with(
        self,
        topic: str,
        key: object,
        value: Any,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        more: dict[str, object] = {}
        if on_delivery is not None:
            if not self._reports_all:
                self._report_all()
            more["on_delivery"] = _reporting(on_delivery)
        if headers:
            more["headers"] = headers
        if partition is not None:
            more["partition"] = partition
        self._produce(topic, value, key, timestamp=timestamp_ms, **more)

    def _wait_for_room(self, topic: str, *record: Any) -> None:
        deadline = time.monotonic() + self._max_block_s
        while True:
            self._raw.poll(min(0.05, self._max_block_s))
            self._raise_failures()
            try:
                return self._produce_with(topic, *record)
            except BufferError as error:
                if time.monotonic() > deadline:
                    why = self._said or "records are produced faster than the brokers take them"
                    advice = "send more slowly, or raise queue.buffering.max.kbytes with properties="
                    raise TimedOut(f"the buffer was full for {self._max_block_s:g} s", why, advice) from error

    def _not_delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            return
        self._is_plain = False
        self._failed += 1
        if len(self._failures) < FAILURES_MAX:
            reason = f"{error.str()} ({error.name()})"
            self._failures.append((message.topic() or "", message.key(), message.value(), reason))

    def _raise_failures(self) -> None:
        if self._failures:
            failures, count = self._failures, self._failed
            self._forget_failures()
            raise DeliveryFailed.of(failures, count)

    def _forget_failures(self) -> None:
        self._failures, self._failed = [], 0
        self._is_plain = bool(self._sent_as_is)

    def _error(self, error: KafkaError) -> None:
        self._said = f"{error.str()} ({error.name()})"

    def _poll_now_and_then(self) -> None:
        while not self._closed.wait(POLL_S):
            self._raw.poll(0)

    def _begin(self, deadline: float) -> None:
        if not self._is_initialized:
            self._repeat(self._raw.init_transactions, deadline)
            self._is_initialized = True
        self._repeat(lambda _: self._raw.begin_transaction(), deadline)

    def _abort(self, deadline: float) -> None:
        self._repeat(self._raw.abort_transaction, max(deadline, time.monotonic() + 10))
        self._forget_failures()

    def _repeat(self, call: Callable[[float], None], deadline: float) -> None:
        """A step of a transaction, repeated while that helps; raises TransactionAborted, ProducerFenced or TimedOut."""
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                return call(left)
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.txn_requires_abort():
                    why = f"{error.str()} ({error.name()})"
                    advice = "run it again: none of it counts"
                    raise TransactionAborted("the transaction is aborted", why, advice, code=error.name()) from failure
                if not error.retriable() or error.fatal() or time.monotonic() > deadline:
                    raise explained(error, "the transaction cannot continue") from failure
            time.sleep(RETRY_PAUSE_S)


def _reporting(on_delivery: OnDelivery) -> Callable[[object, object], None]:
    def report(error: Any, message: Any) -> None:
        if error is not None:
            on_delivery(explained(error, f"a record for {message.topic()} was not stored"), None)
        else:
            where = Stored(message.topic(), message.partition(), message.offset(), message.timestamp()[1])
            on_delivery(None, where)

    return report
