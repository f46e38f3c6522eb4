"""`Consumer`: reads records, alone or as a member of a group."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Consumer as RawConsumer

from penstock.client.application.connection import Connection
from penstock.client.application.errors import REFUSED_NAMES, UNREACHABLE_NAMES, PenstockError, explained, explaining
from penstock.client.application.records import Record
from penstock.client.application.serdes import Serde, decoder_of
from penstock.client.closing import Closing

V = TypeVar("V")

Start = Literal["earliest", "latest"]
Protocol = Literal["consumer", "classic"]
Partition = tuple[str, int]
OnPartitions = Callable[[list[Partition]], None]

REQUEST_TIMEOUT_S = 30.0
# A client that never reached a broker gets an error after this time; later outages are waited for.
CONNECT_TIMEOUT_S = 30.0
MAX_POLL_RECORDS = 500
FETCH_BACKOFF_MS = 20
NO_GROUP = "penstock-without-a-group"


class ConsumerOptions(TypedDict, total=False):
    """The options of consumers, for asyncio too, besides the type of values."""

    group: str | None
    start: Start
    protocol: Protocol
    max_poll_records: int
    properties: Mapping[str, Any] | None


def consumer_properties(
    connection: Connection, group: str | None, start: Start, protocol: Protocol, properties: Mapping[str, object] | None
) -> dict[str, object]:
    """librdkafka's properties of a consumer that commits what it is given, and sees committed records only."""
    found = connection.librdkafka() | {
        "group.id": group or NO_GROUP,
        "auto.offset.reset": start,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # A partition of which enough is fetched ahead is looked at again so soon; librdkafka waits a second, in which
        # a quick reader has read it all.
        "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
    }
    if group is not None and protocol == "consumer":
        found["group.protocol"] = "consumer"
    elif group is not None:
        found["partition.assignment.strategy"] = "cooperative-sticky"
    return found | dict(properties or {})


class Consumer(Closing, Generic[V]):
    """Reads records of topics. It belongs to one thread; use it as a context manager, or call `close`.

    Members of a `group` share the partitions and continue where the group committed (KIP-848, or with
    `protocol="classic"` the older cooperative rebalances). Without a group a consumer reads all partitions for itself.
    A group that is new starts at the `earliest` record. Nothing is committed but by `commit_offsets`: commit after the
    work is done, and no record is missed. Records of aborted transactions are not seen.

    `value` is the type of values, or a serde: bytes by default, `str`, `dict`, a dataclass, a model. Values are decoded
    and checked when they are first used. `properties` are librdkafka's.

    >>> with Consumer(group="billing", value=str) as consumer:
    ...     consumer.subscribe(["orders"])
    ...     record = consumer.poll(10)
    ...     consumer.commit_offsets()
    >>> record.topic
    'orders'
    """

    @overload
    def __init__(
        self: Consumer[bytes], connection: Connection | str | None = None, **options: Unpack[ConsumerOptions]
    ) -> None: ...
    @overload
    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        value: type[V] | Serde[V],
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        value: Any = None,
        group: str | None = None,
        start: Start = "earliest",
        protocol: Protocol = "consumer",
        max_poll_records: int = MAX_POLL_RECORDS,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        self.connection = Connection.of(connection)
        self.group = group
        self._decode = decoder_of(value)
        self._start = start
        self._max_poll_records = max_poll_records
        settings = consumer_properties(self.connection, group, start, protocol, properties)
        self._outage: KafkaError | None = None
        self._has_contact = False
        self._opened = time.monotonic()
        settings["error_cb"] = self._error
        with explaining("the consumer cannot start"):
            self._raw: RawConsumer = RawConsumer(settings)
        # Records that were fetched and not yet handed out are at `_fetched[_next:]`.
        self._fetched: list[Any] = []
        self._next = 0
        self._positions: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        # Partitions that were revoked before the positions of their records were committed.
        self._uncommitted: set[Partition] = set()
        self._revoked_in_fetch: set[Partition] = set()
        self._ended: set[Partition] = set()
        self._topics: list[str] = []
        self._is_closed = False
        self._on_assigned: OnPartitions | None = None
        self._on_revoked: OnPartitions | None = None

    def __iter__(self) -> Iterator[Record[V]]:
        """All records, for ever.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     for record in consumer:
        ...         break
        """
        while True:
            record = self.poll(1.0)
            if record is not None:
                yield record

    def subscribe(
        self,
        topics: str | Iterable[str],
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> None:
        """Read these topics; a name that starts with `^` is a pattern. The functions are called from `poll`.

        >>> with Consumer(group="invoices") as consumer:
        ...     consumer.subscribe(["orders"])
        """
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        with explaining(f"cannot subscribe to {', '.join(self._topics)}"):
            if self.group is None:
                self._assign_all()
            else:
                self._raw.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, timeout_s: float = 1.0) -> Record[V] | None:
        """The next record; None if there is none within the time.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     consumer.poll(10).offset
        0
        """
        if self._next == len(self._fetched) and not self._fetch(timeout_s):
            return None
        at = self._next
        self._next = at + 1
        return Record(self._fetched[at], self._decode)

    def poll_many(self, max_records: int = MAX_POLL_RECORDS, timeout_s: float = 1.0) -> list[Record[V]]:
        """Up to so many records: what is there, as soon as there is one, or nothing after the time.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     len(consumer.poll_many(2, timeout_s=10)) in (1, 2)
        True
        """
        if self._next == len(self._fetched) and not self._fetch(timeout_s):
            return []
        decode = self._decode
        found = self._fetched[self._next : self._next + max_records]
        self._next += len(found)
        return [Record(message, decode) for message in found]

    @property
    def has_buffered(self) -> bool:
        """Whether the next `poll` returns at once.

        >>> with Consumer() as consumer:
        ...     consumer.has_buffered
        False
        """
        return self._next < len(self._fetched)

    def commit_offsets(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commit what `poll` has handed out so far, or the given next offsets, and wait until it is durable.

        >>> with Consumer(group="billing") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     record = consumer.poll(10)
        ...     consumer.commit_offsets()
        """
        if self.group is None:
            raise PenstockError("offsets cannot be committed", "this consumer has no group", "use Consumer(group=…)")
        if offsets is None:
            wanted = self.positions()
        else:
            wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        if not wanted:
            return
        with explaining(f"the offsets of group {self.group} cannot be committed"):
            results = self._raw.commit(offsets=wanted, asynchronous=False)
        for result in results or ():
            if result.error is not None:
                raise explained(result.error, f"the offset of {result.topic}-{result.partition} cannot be committed")
        self._note_committed(wanted)

    def committed(self) -> dict[Partition, int]:
        """The group's committed offsets of the assigned partitions; those without one are left out.

        >>> with Consumer(group="new") as consumer:
        ...     consumer.committed()
        {}
        """
        found = self._ask(lambda: self._raw.committed(self._raw.assignment(), timeout=REQUEST_TIMEOUT_S))
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def positions(self) -> list[TopicPartition]:
        """The offsets after the records handed out so far, as librdkafka's objects: what is to be committed.

        >>> with Consumer(group="billing") as consumer:
        ...     consumer.positions()
        []
        """
        places = self._positions
        for message in self._fetched[: self._next]:
            places[message.topic(), message.partition()] = message.offset() + 1
        del self._fetched[: self._next]
        self._next = 0
        return [TopicPartition(topic, partition, offset) for (topic, partition), offset in places.items()]

    def group_metadata(self) -> Any:
        """What a transaction needs to know of this member, as librdkafka's object.

        >>> with Consumer(group="billing") as consumer:
        ...     consumer.group_metadata() is not None
        True
        """
        return self._raw.consumer_group_metadata()

    def assignment(self) -> list[Partition]:
        """The partitions that this consumer reads now.

        >>> with Consumer(group="billing") as consumer:
        ...     consumer.assignment()
        []
        """
        return sorted((each.topic, each.partition) for each in self._raw.assignment())

    def seek(self, topic: str, partition: int, offset: int | Start) -> None:
        """Read a partition from an offset on, or from its first or last record.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     consumer.seek("orders", 0, "earliest")
        """
        place = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(str(offset), offset)
        self._forget({(topic, partition)})
        self._ask(lambda: self._raw.seek(TopicPartition(topic, partition, int(place))))

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Read the assigned partitions from the first record at or after a time on.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     consumer.seek_to_time(0)
        """
        wanted = [TopicPartition(topic, partition, timestamp_ms) for topic, partition in self.assignment()]
        for each in self._ask(lambda: self._raw.offsets_for_times(wanted, timeout=REQUEST_TIMEOUT_S)):
            self.seek(each.topic, each.partition, each.offset if each.offset >= 0 else "latest")

    def rewind(self) -> None:
        """Read again from the committed offsets on, or from where a new group starts.

        >>> with Consumer(group="billing") as consumer:
        ...     consumer.rewind()
        """
        committed = self.committed() if self.group is not None else {}
        self._positions.clear()
        self._uncommitted.clear()
        for topic, partition in self.assignment():
            self.seek(topic, partition, committed.get((topic, partition), self._start))

    def pause(self, *partitions: Partition) -> None:
        """Stop reading these partitions, or all, while staying a member of the group; keep calling `poll`.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     consumer.pause(("orders", 0))
        """
        self._ask(lambda: self._raw.pause([TopicPartition(*each) for each in partitions or self.assignment()]))

    def resume(self, *partitions: Partition) -> None:
        """Go on with paused partitions, or all.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     consumer.resume()
        """
        self._ask(lambda: self._raw.resume([TopicPartition(*each) for each in partitions or self.assignment()]))

    def ended(self) -> set[Partition]:
        """The partitions that were read to their end at some time. Needs properties={"enable.partition.eof": True}.

        >>> with Consumer() as consumer:
        ...     consumer.ended()
        set()
        """
        return set(self._ended)

    def lag(self) -> dict[Partition, int]:
        """How many records of each assigned partition are still to be handed out, as far as this consumer knows.

        >>> with Consumer() as consumer:
        ...     consumer.subscribe(["orders"])
        ...     all(records >= 0 for records in consumer.lag().values())
        True
        """
        self.positions()
        lags = {}
        for topic, partition in self.assignment():
            ends = functools.partial(
                self._raw.get_watermark_offsets, TopicPartition(topic, partition), REQUEST_TIMEOUT_S
            )
            low, high = self._ask(ends)
            lags[topic, partition] = max(0, high - max(low, self._positions.get((topic, partition), low)))
        return lags

    def close(self) -> None:
        """Leave the group and close. Nothing is committed by it.

        >>> consumer = Consumer()
        >>> consumer.close()
        """
        if not self._is_closed:
            self._is_closed = True
            self._raw.close()

    # For `penstock.Producer`, whose transactions commit positions too, and for the asyncio client, whose calls may be
    # canceled: it fetches in one step and hands out in another, so that no record is handed to a canceled call.

    def _note_committed(self, positions: list[TopicPartition]) -> None:
        """Note that these positions are durable."""
        self._committed.update({(each.topic, each.partition): each.offset for each in positions})
        self._uncommitted.clear()

    def _take_uncommitted(self) -> set[Partition]:
        """The partitions that were revoked before the records handed out of them were committed; forgotten then."""
        found, self._uncommitted = self._uncommitted, set()
        return found

    def _fill(self, timeout_s: float) -> None:
        """Fetch records that the next `poll` hands out, unless there are some."""
        if not self.has_buffered:
            self._fetch(timeout_s)

    def _fetch(self, timeout_s: float) -> bool:
        """Take up what librdkafka has fetched, waiting for a first record; False if there is none in time."""
        self.positions()
        self._revoked_in_fetch.clear()
        # `consume` alone would wait for a full batch; the first record is worth more than a full one.
        first = self._ask(lambda: self._raw.poll(timeout_s))
        if first is None:
            self._check_contact()
            return False
        found = [first]
        if self._max_poll_records > 1:
            found += self._ask(lambda: self._raw.consume(self._max_poll_records - 1, 0))
            if (first.topic(), first.partition()) in self._revoked_in_fetch:
                # It belongs to another member since `consume`, which leaves out such records itself.
                del found[0]
        self._has_contact = True
        if any(message.error() is not None for message in found):
            self._fetched = [message for message in found if message.error() is None]
            for message in found:
                if message.error() is not None:
                    self._judge(message)
        else:
            self._fetched = found
        return bool(self._fetched)

    def _judge(self, message: Any) -> None:
        """Raise what the application must know; librdkafka retries the rest by itself."""
        error = message.error()
        name = error.name()
        if name == "_PARTITION_EOF":
            self._ended.add((message.topic(), message.partition()))
        if (
            error.fatal()
            or name in REFUSED_NAMES
            or not (error.retriable() or name in UNREACHABLE_NAMES or name == "_PARTITION_EOF")
        ):
            raise explained(error, f"cannot read {', '.join(self._topics)}")

    def _check_contact(self) -> None:
        error = self._outage
        if error is None or self._has_contact:
            return
        if error.name() in REFUSED_NAMES or time.monotonic() - self._opened > CONNECT_TIMEOUT_S:
            raise explained(error, f"no broker at {self.connection.bootstrap} lets us in")

    def _ask(self, call: Callable[[], object]) -> Any:
        try:
            return call()
        except KafkaException as error:
            raise explained(error.args[0], "the consumer's request failed") from error
        except RuntimeError as error:
            raise PenstockError("the consumer cannot be used", str(error), "it is closed: make a new one") from error

    def _assign_all(self) -> None:
        found = []
        for topic in self._topics:
            metadata = self._raw.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
            if metadata.error is not None:
                raise explained(metadata.error, f"cannot read {topic}")
            found += [TopicPartition(topic, partition) for partition in metadata.partitions]
        place = OFFSET_BEGINNING if self._start == "earliest" else OFFSET_END
        for each in found:
            each.offset = place
        self._raw.assign(found)

    def _forget(self, partitions: set[Partition]) -> None:
        self.positions()
        self._fetched = [each for each in self._fetched if (each.topic(), each.partition()) not in partitions]
        for each in partitions:
            self._positions.pop(each, None)

    def _assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        self._has_contact = True
        if self._on_assigned is not None:
            self._on_assigned([(each.topic, each.partition) for each in partitions])

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        if self._on_revoked is not None:
            self._on_revoked(places)
        self._give_up(set(places))

    def _lost(self, _: object, partitions: list[TopicPartition]) -> None:
        self._give_up({(each.topic, each.partition) for each in partitions})

    def _give_up(self, partitions: set[Partition]) -> None:
        self.positions()
        places = self._positions
        self._uncommitted |= {each for each in partitions & places.keys() if self._committed.get(each) != places[each]}
        for each in partitions:
            self._committed.pop(each, None)
        self._revoked_in_fetch |= partitions
        self._forget(partitions)

    def _error(self, error: KafkaError) -> None:
        if error.name() in (*UNREACHABLE_NAMES, *REFUSED_NAMES):
            self._outage = error
