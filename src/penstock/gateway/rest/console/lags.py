"""How far groups are behind, in all partitions of the topics they read; and over time, as far as anybody looked."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.web.problem import Problem

POINTS_MAX = 450
GROUPS_MAX = 200
INTERVAL_MS = 1_500


Place = tuple[str, int]


class PartitionLag(NamedTuple):
    """A partition that a group reads; `lag` is None where a broker does not say where the partition ends."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None


async def group_lags(admin: Admin, groups: Groups, name: str, assigned: Iterable[Place] = ()) -> list[PartitionLag]:
    """All partitions of the topics in which a group has committed offsets or members have partitions.

    Where it has committed nothing, it has everything still to read that is there.
    """
    committed = await groups.committed(name)
    topics = sorted({topic for topic, _ in (*committed, *assigned)})
    counts = await asyncio.gather(*(_partition_count(admin, topic) for topic in topics))
    places = {(topic, number) for topic, count in zip(topics, counts, strict=True) for number in range(count)}
    places |= {*committed, *assigned}
    ends, begins = await asyncio.gather(
        groups.offsets(sorted(places), OffsetSpec.latest()),  # type: ignore[no-untyped-call]
        groups.offsets(sorted(places - committed.keys()), OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
    )
    found = []
    for topic, partition in sorted(places):
        offset, end = committed.get((topic, partition)), ends.get((topic, partition))
        start = begins.get((topic, partition)) if offset is None else offset
        lag = max(0, end - start) if end is not None and start is not None else None
        found.append(PartitionLag(topic, partition, offset, end, lag))
    return found


async def _partition_count(admin: Admin, topic: str) -> int:
    try:
        return await admin.partition_count(topic)
    except Problem as problem:
        if problem.status != 404:
            raise
        # The topic is gone; what the group committed in it is not.
        return 0


def total_lag(lags: Iterable[PartitionLag]) -> int:
    """The records that are known to be unread."""
    return sum(each.lag or 0 for each in lags)


class LagHistory:
    """The last points of the groups that were looked at last."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, deque[tuple[int, dict[str, int]]]] = OrderedDict()

    def note(self, group: str, lags: list[PartitionLag]) -> None:
        """Keep a point, unless the last one is a moment old."""
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
        """The group is no more."""
        self._groups.pop(group, None)

    def show(self, group: str) -> list[dict[str, Any]]:
        """Points, the oldest first."""
        return [{"at_ms": at_ms, "lags": lags} for at_ms, lags in self._groups.get(group, ())]
