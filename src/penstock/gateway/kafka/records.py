"""Records that were read, without librdkafka's objects."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

from penstock.gateway.work.budgets import DEFAULT_BUDGETS

if TYPE_CHECKING:
    # Workers know records, but nothing of librdkafka.
    from confluent_kafka import Message

RECORD_OVERHEAD = 64
_headers = methodcaller("headers")

Headers = list[tuple[str, bytes | None]]
HEADERS_UNREADABLE = "its headers are left out, because a name among them is not UTF-8"


class ReadRecord(NamedTuple):
    """A record of a partition.

    `unreadable` says why one comes without its contents; empty for nearly all. `headers_unreadable` is true for one
    that comes without its headers, because some of their names are not UTF-8.
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
        """All its contents: key, value, and the values of its headers."""
        return [self.key, self.value, *(value for _, value in self.headers)]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + RECORD_OVERHEAD


def record_of(message: Message, bytes_max: int = DEFAULT_BUDGETS.record_bytes_max) -> ReadRecord:
    """The record of a message without an error; without its contents where it has more than `bytes_max` bytes."""
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
    if record.size <= bytes_max:
        return record
    why = f"it has {record.size:,} bytes, more than {bytes_max:,} (the limit record_bytes_max)"
    return record._replace(key=None, value=None, headers=[], unreadable=why)


def headers_of(message: Message) -> Headers | None:
    """The headers of a message; None where a name is not UTF-8, which Kafka allows but its clients cannot read.

    To be asked once a message. confluent_kafka then returns a list with a hole in it and an error besides; the second
    time there is no error, and whoever looks into the hole is gone. `methodcaller` looks at the error, as the
    interpreter's own way to call a method does not once it has been called often.
    """
    try:
        listed: list[tuple[str, bytes | str | None]] = _headers(message) or []
    except (SystemError, UnicodeDecodeError):
        return None
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in listed]
