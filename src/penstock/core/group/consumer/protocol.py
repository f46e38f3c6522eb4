"""What classic consumers exchange inside JoinGroup and SyncGroup, which a consumer group reads and writes.

Both messages start with their version. An unknown version is read as the newest known one, since later versions only
add fields at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.group.assignors.contract import Partitions
from penstock.core.group.contract import Topics
from penstock.model.ids import Uuid
from penstock.wire.codec import decode, encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from penstock.wire.primitives import MalformedMessage

VERSION_MAX = 3


def read_version(message: bytes) -> int:
    """The version to read a message as; raises MalformedMessage."""
    version = int.from_bytes(message[:2], "big", signed=True)
    if len(message) < 2 or version < 0:
        raise MalformedMessage("the consumer's message has no version")
    return min(version, VERSION_MAX)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """What a classic consumer subscribes to; raises MalformedMessage."""
    return decode(ConsumerProtocolSubscription, read_version(metadata), metadata[2:], whole=False)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """What a classic consumer was assigned; raises MalformedMessage."""
    return decode(ConsumerProtocolAssignment, read_version(assignment), assignment[2:], whole=False)


def write_assignment(partitions: Partitions, version: int, topics: Topics) -> bytes:
    """An assignment for a classic consumer; deleted topics are left out."""
    named = {topics.topic_name(topic_id): sorted(numbers) for topic_id, numbers in partitions.items()}
    rows = [TopicPartition(name, named[name]) for name in sorted(filter(None, named))]
    return version.to_bytes(2, "big") + encode(ConsumerProtocolAssignment(rows), version)


def partitions_by_id(rows: Iterable[TopicPartition], topics: Topics) -> Partitions:
    """Partitions of topics that exist, from a message that names topics."""
    found: dict[Uuid, frozenset[int]] = {}
    for name, numbers in rows:
        topic_id = topics.topic_id(name)
        if topic_id is not None and numbers:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(numbers)
    return found
