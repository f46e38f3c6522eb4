"""Partitioning of records without a key: one batch to a partition, the next batch to the next, so that all get a share.

librdkafka chooses one at random every few milliseconds, so that a burst of records ends up in the same partition.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

# Kafka's default of batch.size. Batches also contain records of other senders; this keeps one sender's together.
BATCH_BYTES = 16 * 1024
TOPICS_MAX = 10_000


class PartitionRotation:
    """Rotates through a topic's partitions. It stays with one for a batch's bytes, and no longer than `stay_s`.

    Slow senders switch partitions with every record, fast ones with every batch.
    """

    def __init__(self, stay_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stay_s = stay_s
        self._clock = clock
        # By topic: the current partition, its remaining bytes, and until when it is used.
        self._turns: dict[str, tuple[int, int, float]] = {}

    def choose(self, topic: str, partitions: Sequence[int], size_bytes: int) -> int:
        """One of these partitions, which may differ from call to call, for a record of this size."""
        now = self._clock()
        turn, left, until = self._turns.get(topic) or (-1, 0, 0.0)
        if left <= 0 or now >= until:
            # Many short-lived processes must not all begin with the same one.
            turn = random.randrange(len(partitions)) if turn < 0 else turn + 1
            left, until = BATCH_BYTES, now + self._stay_s
            if len(self._turns) >= TOPICS_MAX:
                self._turns.clear()
        self._turns[topic] = (turn, left - max(1, size_bytes), until)
        return partitions[turn % len(partitions)]


def rotation_for(properties: Mapping[str, str], linger_ms: int) -> PartitionRotation | None:
    """The rotation for a producer with these properties; None if they configure librdkafka's partitioner."""
    if "partitioner" in properties or "sticky.partitioning.linger.ms" in properties:
        return None
    return PartitionRotation(linger_ms / 1000)
