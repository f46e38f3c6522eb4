"""Records that could not be used: where they go, and what their headers say about why."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = "dlq."
REASON = "penstock.dlq.reason"
TOPIC = "penstock.dlq.topic"
PARTITION = "penstock.dlq.partition"
OFFSET = "penstock.dlq.offset"
SIZE = "penstock.dlq.size"
# What is kept of a value that is too large for its topic: the topic of dead letters has limits too.
VALUE_BYTES_MAX = 256 * 1024

Header = tuple[str, bytes | None]


def topic_for(topic: str) -> str:
    """Where the dead letters of a topic go."""
    return PREFIX + topic


def too_large(topic: str, size_bytes: int, size_bytes_max: int, headers: Sequence[Header] | None) -> list[Header]:
    """The headers of a record that its topic would not take."""
    reason = (
        f"the record has {size_bytes} bytes, {topic} takes at most {size_bytes_max}: raise its max.message.bytes, "
        f"or send less; the value is kept up to {VALUE_BYTES_MAX} bytes"
    )
    return [
        *(headers or ()),
        (REASON, reason.encode()),
        (TOPIC, topic.encode()),
        (SIZE, str(size_bytes).encode()),
    ]
