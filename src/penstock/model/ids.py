"""Identifiers shared by all packages: topic ids, and the name of a partition."""

from __future__ import annotations

import base64
from typing import NamedTuple

# Kafka's Uuid: sixteen raw bytes. People see it as 22 characters of URL-safe base64.
Uuid = bytes

ZERO_UUID: Uuid = bytes(16)
# The topic id that Kafka reserves for the metadata log's own topic.
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"

NO_PRODUCER_ID = -1
NO_LEADER = -1


def format_uuid(value: Uuid) -> str:
    """Kafka's printed form of a uuid."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_uuid(text: str) -> Uuid:
    """Read Kafka's printed form; raises ValueError for anything else."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid: expected 22 characters of URL-safe base64")
    return raw


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
