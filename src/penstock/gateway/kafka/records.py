"""Records that were read, without librdkafka's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.gateway.work.budgets import DEFAULT_BUDGETS

if TYPE_CHECKING:
    # Workers know records, but nothing of librdkafka.
    from confluent_kafka import Message

RECORD_OVERHEAD = 64


class ReadRecord(NamedTuple):
    """A record of a partition. One that is too long comes without its contents, and says how long it is."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    left_out_bytes: int = 0

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
    listed: list[tuple[str, bytes | str | None]] = list(message.headers() or ())  # type: ignore[arg-type]
    headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in listed]
    record = ReadRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )
    if record.size <= bytes_max:
        return record
    return record._replace(key=None, value=None, headers=[], left_out_bytes=record.size)
