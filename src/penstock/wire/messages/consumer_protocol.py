"""Messages of the embedded family.

Generated from definitions/consumer_protocol.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class ConsumerProtocolSubscription(NamedTuple):
    """Versions 0-3."""

    topics: Sequence[str] = ()
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = -1
    rack_id: str | None = None


class ConsumerProtocolAssignment(NamedTuple):
    """Versions 0-3."""

    assigned_partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None
