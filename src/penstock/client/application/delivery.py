"""What sync and asyncio producers share: settings, encoding of values, and which partition a spread key goes to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError
from penstock.client.application.serdes import plain_key, to_json
from penstock.wire.partitioner import partition_for_key

# A record is retried for this long, then its delivery has failed.
DELIVERY_TIMEOUT_S = 120.0
# How many failed records an error names.
FAILURES_MAX = 100

Failure = tuple[str, bytes | None, bytes | None, str]


def producer_properties(
    connection: Connection, delivery_timeout_s: float, compression: str | None, properties: Mapping[str, Any] | None
) -> dict[str, Any]:
    """librdkafka's properties of a producer that loses and repeats nothing, with Java's partitioner."""
    found = connection.librdkafka() | {
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": int(delivery_timeout_s * 1000),
    }
    if compression:
        found["compression.type"] = compression
    return found | dict(properties or {})


def encode_any(value: Any, topic: str) -> bytes | str | None:
    """Text and bytes as they are, None as a tombstone, anything else as JSON."""
    if value is None or isinstance(value, bytes | str):
        return value
    return bytes(value) if isinstance(value, bytearray | memoryview) else to_json(value, topic)


class Spreader:
    """Spreads keys that are too frequent for one partition over some neighbouring ones, in turns."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def choose(self, key: Any, partitions: int, spread: int) -> int:
        """The partition for the next record with this key."""
        return self.all(key, partitions, spread)[next(self._turns) % min(spread, partitions)]

    @staticmethod
    def all(key: Any, partitions: int, spread: int) -> list[int]:
        """Every partition that records with this key may be in."""
        if spread < 1:
            raise PenstockError(
                f"spread={spread} is not possible", "a key is in one partition at least", "use 1 or more"
            )
        plain = plain_key(key)
        if plain is None:
            raise PenstockError(
                "a record without a key cannot be spread", "it has no partition of its own", "give a key"
            )
        first = partition_for_key(plain.encode() if isinstance(plain, str) else plain, partitions)
        return [(first + step) % partitions for step in range(min(spread, partitions))]
