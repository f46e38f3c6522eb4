"""The requests to a share-partition, its answers, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.share.runs import Delays, Reason, Run, StateBatch


class Acquired(NamedTuple):
    """Records that a member got."""

    first: int
    last: int
    delivery_count: int


class Write(NamedTuple):
    """What has to become durable before a change counts. `number` is for `settle`."""

    number: int
    batches: tuple[StateBatch, ...]


class Saving(NamedTuple):
    """All that goes into one write of the stored state."""

    start: int
    finished_count: int
    batches: tuple[StateBatch, ...]
    delays: Delays


class DeadLetter(NamedTuple):
    """One record whose dead letter must be written, by this producer and with this sequence."""

    producer_id: int
    sequence: int
    offset: int
    delivery_count: int
    reason: Reason
    member: str


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """A share group's settings for its partitions, with Kafka's defaults."""

    delivery_count_max: int = 5
    lock_ms: int = 30_000
    in_flight_max: int = 2_000
    may_renew: bool = True
    # Whether records that are given up become dead letters.
    has_dead_letters: bool = False
    # How long a record that came back waits, doubled with every delivery; 0 for not at all.
    backoff_ms: int = 0
    backoff_max_ms: int = 60_000
    # How many delayed records of a partition are kept in memory.
    delays_max: int = 100_000

    def backoff_after(self, delivery_count: int) -> int:
        """How long a record waits after so many deliveries."""
        return min(self.backoff_ms << max(0, delivery_count - 1), self.backoff_max_ms) if self.backoff_ms else 0


def ranges_told(runs: Sequence[Run], batch_size: int) -> list[Acquired]:
    """The ranges that a member is sent: neighbours with the same count are one, up to about `batch_size`."""
    told: list[Acquired] = []
    for run in runs:
        before = told[-1] if told else None
        joins = before is not None and before.last + 1 == run.first and before.delivery_count == run.delivery_count
        if before is not None and joins and not 0 < batch_size <= before.last - before.first + 1:
            told[-1] = Acquired(before.first, run.last, run.delivery_count)
        else:
            told.append(Acquired(run.first, run.last, run.delivery_count))
    assert sum(one.last - one.first + 1 for one in told) == sum(run.size for run in runs), "nothing is left out"
    assert len(told) <= len(runs)
    return told
