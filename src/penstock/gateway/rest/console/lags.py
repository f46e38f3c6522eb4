"""How far groups lag behind in all partitions of the topics they read, now and recently."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.client.operations.groups import Group
from penstock.client.operations.offsets import EARLIEST, LATEST
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.web.problem import Problem
from penstock.model.ids import TopicPartition

POINTS_MAX = 450
GROUPS_MAX = 200
INTERVAL_MS = 1_500


class PartitionLag(NamedTuple):
    """A partition that a group reads; `lag` is None if the partition's end offset is unknown."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None


async def group_lags(
    admin: Admin, groups: Groups, name: str, assigned: Iterable[TopicPartition] = ()
) -> list[PartitionLag]:
    """All partitions of the topics in which a group has committed offsets or members have partitions.

    Without a committed offset, all records of the partition count as lag.
    """
    committed = await groups.committed(name)
    topics = sorted({place.topic for place in (*committed, *assigned)})
    counts = await asyncio.gather(*(_partition_count(admin, topic) for topic in topics))
    partitions = {
        TopicPartition(topic, number) for topic, count in zip(topics, counts, strict=True) for number in range(count)
    }
    partitions |= {*committed, *assigned}
    ends, starts = await asyncio.gather(
        groups.offsets(partitions, LATEST),
        groups.offsets(partitions - committed.keys(), EARLIEST),
    )
    found = []
    for place in sorted(partitions):
        offset, end = committed.get(place), ends.get(place)
        start = starts.get(place) if offset is None else offset
        lag = max(0, end - start) if end is not None and start is not None else None
        found.append(PartitionLag(*place, offset, end, lag))
    return found


async def share_lags(groups: Groups, shared: Iterable[Group]) -> dict[str, list[PartitionLag]]:
    """Where share groups start in their partitions, and how many records they have to finish from there on."""
    return {
        name: [PartitionLag(*place, each.start_offset, None, each.lag) for place, each in sorted(rows.items())]
        for name, rows in (await groups.share_offsets(shared)).items()
    }


async def _partition_count(admin: Admin, topic: str) -> int:
    try:
        return await admin.partition_count(topic)
    except Problem as problem:
        if problem.status != 404:
            raise
        # The topic was deleted; the offsets that the group committed in it remain.
        return 0


def total_lag(lags: Iterable[PartitionLag]) -> int:
    """The sum of all known lags."""
    return sum(each.lag or 0 for each in lags)


class LagHistory:
    """Recent lags of the groups that were looked at last."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, deque[tuple[int, dict[str, int]]]] = OrderedDict()

    def note(self, group: str, lags: list[PartitionLag]) -> None:
        """Add a point, unless the last one is very recent."""
        points = self._groups.setdefault(group, deque(maxlen=POINTS_MAX))
        self._groups.move_to_end(group)
        if len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)
        now_ms = time.time_ns() // 1_000_000
        if points and now_ms - points[-1][0] < INTERVAL_MS:
            return
        by_topic: dict[str, int] = {}
        for lag in lags:
            by_topic[lag.topic] = by_topic.get(lag.topic, 0) + (lag.lag or 0)
        points.append((now_ms, by_topic))

    def forget(self, group: str) -> None:
        """Drop the history of a deleted group."""
        self._groups.pop(group, None)

    def show(self, group: str) -> list[dict[str, object]]:
        """The points, oldest first."""
        return [{"at_ms": at_ms, "lags": lags} for at_ms, lags in self._groups.get(group, ())]
