"""Records as applications see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.client.application.errors import SerializationFailed

if TYPE_CHECKING:
    from confluent_kafka import Message

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

Header = tuple[str, bytes | None]
Headers = Sequence[tuple[str, bytes | str | None]]
_MISSING: Any = object()


class Stored(NamedTuple):
    """Where a record was stored.

    >>> Stored("orders", 0, 12, 1700000000000).offset
    12
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Record(Generic[V_co]):
    """A record that was read: key, value, headers and where it came from. It is decoded when `value` is first used.

    >>> from confluent_kafka import Message
    >>> record = Record(Message("orders", 0, 7, b"alice", b"tea", [("trace", b"1")], None, (1, 5)))
    >>> record.topic, record.partition, record.offset, record.key, record.value, record.header("trace")
    ('orders', 0, 7, 'alice', b'tea', b'1')
    """

    __slots__ = ("_decode", "_value", "message")

    def __init__(self, message: Any, decode: Callable[[bytes, str], V_co] | None = None) -> None:
        self.message: Message = message
        self._decode = decode
        self._value: Any = _MISSING

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition} at {self.offset}, key={self.message.key()!r})"

    @property
    def topic(self) -> str:
        """The topic it was read from."""
        return self.message.topic()  # type: ignore[return-value]

    @property
    def partition(self) -> int:
        """Its partition."""
        return self.message.partition()  # type: ignore[return-value]

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        return self.message.offset()  # type: ignore[return-value]

    @property
    def key(self) -> str | None:
        """The key as text; raises SerializationFailed if it is not UTF-8."""
        key = self.message.key()
        try:
            return None if key is None else key.decode()
        except UnicodeDecodeError as error:
            raise SerializationFailed(f"the key of {self!r} is not text", str(error), "use key_bytes") from error

    @property
    def key_bytes(self) -> bytes | None:
        """The key as it is stored."""
        key: bytes | None = self.message.key()
        return key

    @property
    def value(self) -> V_co:
        """The value, of the consumer's type. A record without a value (a tombstone) has None."""
        value = self._value
        if value is _MISSING:
            value = self.message.value()
            if value is not None and self._decode is not None:
                value = self._decode(value, self.topic)
            self._value = value
        return value  # type: ignore[no-any-return]

    @property
    def value_bytes(self) -> bytes | None:
        """The value as it is stored."""
        value: bytes | None = self.message.value()
        return value

    @property
    def headers(self) -> list[Header]:
        """The headers, in order; a name may occur more than once."""
        headers: Any = self.message.headers()
        return list(headers or ())

    def header(self, name: str) -> bytes | None:
        """The last header with this name."""
        return next((value for found, value in reversed(self.headers) if found == name), None)

    @property
    def timestamp_ms(self) -> int:
        """When it was created or appended, depending on the topic's message.timestamp.type."""
        return self.message.timestamp()[1]

    @property
    def time(self) -> datetime:
        """The same as a datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def deliveries(self) -> int:
        """How often a share group has handed it out, this time included; 1 for other consumers."""
        count = getattr(self.message, "delivery_count", None)
        return (count() if count is not None else None) or 1
