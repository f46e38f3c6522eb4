"""Records that were read, without librdkafka's objects."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Message


class ReadRecord(NamedTuple):
    """A record of a partition."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.key or b"") + len(self.value or b"") + 64


def record_of(message: Message) -> ReadRecord:
    """The record of a message without an error."""
    listed: list[tuple[str, bytes | str | None]] = list(message.headers() or ())  # type: ignore[arg-type]
    headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in listed]
    return ReadRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )
