"""Dead letters: the topics they go to, and the headers with the reason."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = "dlq."
REASON = "penstock.dlq.reason"
TOPIC = "penstock.dlq.topic"
PARTITION = "penstock.dlq.partition"
OFFSET = "penstock.dlq.offset"
SIZE = "penstock.dlq.size"
# How much is kept of a value that is too large for its topic: the dead-letter topic has limits too.
VALUE_BYTES_MAX = 256 * 1024

Header = tuple[str, bytes | None]


def topic_for(topic: str) -> str:
    """The dead-letter topic of a topic."""
    return PREFIX + topic


def too_large(topic: str, size_bytes: int, size_bytes_max: int, headers: Sequence[Header] | None) -> list[Header]:
    """The headers of a record that is too large for its topic."""
    reason = (
        f"the record has {size_bytes} bytes, {topic} accepts at most {size_bytes_max}: raise its max.message.bytes, "
        f"or send less; the value is kept up to {VALUE_BYTES_MAX} bytes"
    )
    return [
        *(headers or ()),
        (REASON, reason.encode()),
        (TOPIC, topic.encode()),
        (SIZE, str(size_bytes).encode()),
    ]
