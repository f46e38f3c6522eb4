"""`ShareConsumer`: a worker of a share group, Kafka's queues (KIP-932)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar, Unpack, overload

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException
from confluent_kafka import ShareConsumer as RawShareConsumer

from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError, explained, explaining
from penstock.client.application.records import Record
from penstock.client.application.serdes import Serde, decoder_of
from penstock.client.closing import Closing

V = TypeVar("V")

Outcome = Literal["accept", "release", "reject"]
OUTCOMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
COMMIT_TIMEOUT_S = 30.0
# librdkafka's log would say at every start that share consumers are a preview.
QUIET = 3


class ShareOptions(TypedDict):
    """The options of share consumers, for asyncio too, besides the type of values."""

    group: str
    properties: NotRequired[Mapping[str, object] | None]


class ShareConsumer(Closing, Generic[V]):
    """Takes records of topics together with any number of other workers, more than there are partitions.

    Every record is locked for one worker until that worker accepts it (done), releases it (again, for any worker), or
    rejects it (never again). What is not acknowledged comes back when its lock ends, and is set aside after the
    group's `share.delivery.count.limit` deliveries: `record.deliveries` counts. There is no order.

    A new group starts at the topics' end; `Admin.alter_group(group, {"share.auto.offset.reset": "earliest"})` lets it
    start at the beginning.

    >>> with ShareConsumer(group="packers", value=str) as consumer:
    ...     consumer.subscribe(["orders"])
    ...     record = consumer.poll(0.1)
    ...     if record is not None:
    ...         consumer.acknowledge(record)
    ...         consumer.commit_offsets()
    """

    @overload
    def __init__(
        self: ShareConsumer[bytes], connection: Connection | str | None = None, **options: Unpack[ShareOptions]
    ) -> None: ...
    @overload
    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        value: type[V] | Serde[V],
        **options: Unpack[ShareOptions],
    ) -> None: ...
    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        group: str,
        value: Any = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        self.connection = Connection.of(connection)
        self.group = group
        self._decode = decoder_of(value)
        settings = self.connection.librdkafka() | {
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": QUIET,
        }
        with explaining("the share consumer cannot start"):
            self._raw: RawShareConsumer = RawShareConsumer(settings | dict(properties or {}))
        self._fetched: deque[object] = deque()
        self._is_closed = False

    def __iter__(self) -> Iterator[Record[V]]:
        """All records, for ever."""
        while True:
            record = self.poll(1.0)
            if record is not None:
                yield record

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Take records of these topics.

        >>> with ShareConsumer(group="packers") as consumer:
        ...     consumer.subscribe(["orders"])
        """
        self._call("cannot subscribe", self._raw.subscribe, [topics] if isinstance(topics, str) else list(topics))

    def poll(self, timeout_s: float = 1.0) -> Record[V] | None:
        """The next record; None if there is none within the time. Those before it must be acknowledged.

        >>> with ShareConsumer(group="packers") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     record = consumer.poll(0.1)
        """
        self._fill(timeout_s)
        return Record(self._fetched.popleft(), self._decode) if self._fetched else None

    def poll_many(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[V]]:
        """Up to so many records: what is there, as soon as there is one, or nothing after the time.

        >>> with ShareConsumer(group="packers") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     records = consumer.poll_many(10, timeout_s=0.1)
        """
        first = self.poll(timeout_s)
        found = [] if first is None else [first]
        while self._fetched and len(found) < max_records:
            found.append(Record(self._fetched.popleft(), self._decode))
        return found

    @property
    def has_buffered(self) -> bool:
        """Whether the next `poll` returns at once.

        >>> with ShareConsumer(group="packers") as consumer:
        ...     consumer.has_buffered
        False
        """
        return bool(self._fetched)

    def acknowledge(self, record: Record[object], outcome: Outcome = "accept") -> None:
        """Say what became of a record; it counts with the next `poll` or `commit_offsets`.

        >>> with ShareConsumer(group="packers") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     for record in consumer.poll_many(10, timeout_s=0.1):
        ...         consumer.acknowledge(record, "release")
        """
        if outcome not in OUTCOMES:
            raise PenstockError(
                f"{outcome!r} is no outcome", "a record is accept, release or reject", "use one of them"
            )
        self._call(f"{record!r} cannot be acknowledged", self._raw.acknowledge, record.message, OUTCOMES[outcome])

    def commit_offsets(self, timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        """Send the acknowledgements, and wait until they are durable.

        >>> with ShareConsumer(group="packers") as consumer:
        ...     consumer.commit_offsets()
        """
        for place, error in self._call("acknowledgements failed", self._raw.commit_sync, timeout_s).items():
            if error is not None:
                where = f"{place.topic}-{place.partition}"
                raise explained(error.args[0], f"records of {where} cannot be acknowledged")

    def close(self) -> None:
        """Leave the group; records that are not acknowledged go to others.

        >>> consumer = ShareConsumer(group="packers")
        >>> consumer.close()
        """
        if not self._is_closed:
            self._is_closed = True
            self._raw.close()

    def _fill(self, timeout_s: float) -> None:
        """Take records that the next `poll` hands out, unless there are some."""
        if self._fetched:
            return
        for message in self._call("cannot take records", self._raw.poll, timeout_s):
            error: KafkaError | None = message.error()
            if error is None:
                self._fetched.append(message)
            elif error.fatal() or not error.retriable():
                raise explained(error, "cannot take records")

    def _call(self, what: str, call: Any, *arguments: object) -> Any:
        try:
            return call(*arguments)
        except KafkaException as error:
            raise explained(error.args[0], what) from error
        except RuntimeError as error:
            raise PenstockError(what, str(error), "subscribe first; a closed consumer cannot be used") from error
