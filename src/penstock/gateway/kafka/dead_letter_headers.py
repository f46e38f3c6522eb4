"""The origin of a dead letter and the reason, from the headers of Penstock, share groups, Kafka Streams, Connect and
Spring.

Penstock and Kafka write numbers as text (KIP-1191, KIP-1034, Kafka Connect's error context). Spring writes them as
big-endian binary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

Headers = Sequence[tuple[str, bytes | None]]
# Names of dead-letter topics by common convention.
TOPIC_NAMES = re.compile(r"(^|[._-])(dlq|dlt|dead[._-]?letters?)([._-]|$)", re.IGNORECASE)
# Pipelines keep so much of a value that is too large for its topic, and write its size here.
SIZE = "penstock.dlq.size"
VALUE_BYTES_MAX = 256 * 1024
NUMBER_SIZES = (4, 8)
DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class Family:
    """One producer's header names. All headers with one of its prefixes are removed when the record is replayed."""

    prefixes: tuple[str, ...]
    topic: str
    partition: str
    offset: str
    reasons: tuple[str, ...]
    binary: bool = False
    # Only Penstock and share groups have the group and the number of deliveries.
    group: str = ""
    attempts: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was first written; fields that the headers lack are None."""

    topic: str | None
    partition: int | None
    offset: int | None
    reason: str | None
    group: str | None = None
    attempts: int | None = None

    def as_json(self) -> dict[str, object]:
        """The JSON object for the console."""
        return asdict(self)


def _dotted(prefix: str, *reasons: str) -> Family:
    return Family(
        (prefix,), f"{prefix}topic", f"{prefix}partition", f"{prefix}offset", tuple(prefix + each for each in reasons)
    )


def _spring(start: str) -> Family:
    parts = ("original-", "exception-", "key-exception-", "value-exception-")
    reasons = ("exception-message", "exception-cause-fqcn", "exception-fqcn", "key-exception-message")
    return Family(
        tuple(start + part for part in parts),
        f"{start}original-topic",
        f"{start}original-partition",
        f"{start}original-offset",
        tuple(start + each for each in reasons),
        binary=True,
    )


FAMILIES = (
    replace(_dotted("penstock.dlq.", "reason"), group="penstock.dlq.group", attempts="penstock.dlq.attempts"),
    replace(_dotted("__dlq.errors.", "message"), group="__dlq.errors.group", attempts="__dlq.errors.delivery.count"),
    _dotted("__streams.errors.", "message", "exception"),
    _dotted("__connect.errors.", "exception.message", "exception.class.name"),
    _spring("kafka_dlt-"),
    # Spring's retry topics use the same headers.
    _spring("kafka_"),
)


def origin_of(headers: Headers) -> Origin | None:
    """The origin that the headers name; None if there are no dead-letter headers."""
    found = dict(headers)
    for family in FAMILIES:
        if any(name.startswith(family.prefixes) for name in found):
            return Origin(
                _text(found.get(family.topic)),
                _number(found.get(family.partition), family.binary),
                _number(found.get(family.offset), family.binary),
                next((text for name in family.reasons if (text := _text(found.get(name)))), None),
                _text(found.get(family.group)),
                _number(found.get(family.attempts), family.binary),
            )
    return None


def is_cut(value: bytes | None, headers: Headers) -> bool:
    """Whether a letter has only the beginning of its record's value."""
    return len(value or b"") == VALUE_BYTES_MAX and any(name == SIZE for name, _ in headers)


def without_reasons(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that the record had before it became a dead letter."""
    prefixes = tuple(prefix for family in FAMILIES for prefix in family.prefixes)
    return [(name, value) for name, value in headers if not name.startswith(prefixes)]


def _text(value: bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if value else None


def _number(value: bytes | None, binary: bool) -> int | None:
    if not value:
        return None
    if binary and len(value) in NUMBER_SIZES:
        return int.from_bytes(value, "big", signed=True)
    # Other implementations of Spring's headers may write digits.
    return int(value) if value.isdigit() and len(value) <= DIGITS_MAX else None
