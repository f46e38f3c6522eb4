"""What the checks of every API share: a broker with something in it, and a way to ask it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.testing import Cluster

Ask = Callable[[Any, int], Any]


@dataclass(frozen=True)
class World:
    """What is there before a test begins: a topic of two partitions with three records in the first one."""

    cluster: Cluster
    topic: str
    topic_id: bytes
    producer_id: int
    first_timestamp: int
    missing: str = "no-such-topic"
    missing_id: bytes = bytes(range(16))

    def new_topic(self, **options: Any) -> str:
        return self.cluster.create_topic(**options)


def fresh_name() -> str:
    """A topic name that is not taken."""
    return f"fresh-{uuid.uuid4().hex[:12]}"
