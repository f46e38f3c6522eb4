"""Records that were read, independent of librdkafka's objects."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

from penstock.gateway.work.budgets import DEFAULT_BUDGETS

if TYPE_CHECKING:
    # Workers use records, but do not load librdkafka.
    from confluent_kafka import Message

RECORD_OVERHEAD = 64
_headers = methodcaller("headers")

Headers = list[tuple[str, bytes | None]]
HEADERS_UNREADABLE = "its headers are left out, because a header name is not valid UTF-8"


class ReadRecord(NamedTuple):
    """A record of a partition.

    `unreadable` is the reason if its contents are missing; empty for nearly all records. `headers_unreadable` is true
    if its headers are missing, because some of their names are not valid UTF-8.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    unreadable: str = ""
    headers_unreadable: bool = False

    @property
    def parts(self) -> list[bytes | None]:
        """Its key, its value, and the values of its headers."""
        return [self.key, self.value, *(value for _, value in self.headers)]

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + RECORD_OVERHEAD


def record_of(message: Message, bytes_max: int = DEFAULT_BUDGETS.record_bytes_max) -> ReadRecord:
    """The record of a message without an error; without its contents if it has more than `bytes_max` bytes."""
    headers = headers_of(message)
    record = ReadRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers or [],
        headers_unreadable=headers is None,
    )
    return limited(record, bytes_max)


def limited(record: ReadRecord, bytes_max: int) -> ReadRecord:
    """The record; without its contents if it has more than `bytes_max` bytes."""
    if record.size <= bytes_max:
        return record
    why = f"it has {record.size:,} bytes, more than {bytes_max:,} (the limit record_bytes_max)"
    return record._replace(key=None, value=None, headers=[], unreadable=why)


def headers_of(message: Message) -> Headers | None:
    """The headers of a message; None if a name is not valid UTF-8, which Kafka allows but its clients cannot read.

    May be called only once per message. confluent_kafka returns a list with a NULL entry and sets an error; the second
    call sets no error, and accessing the entry crashes. `methodcaller` checks the error, which the interpreter's
    specialized method call does not.
    """
    try:
        listed: list[tuple[str, bytes | str | None]] = _headers(message) or []
    except (SystemError, UnicodeDecodeError):
        return None
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in listed]
