"""Lags of groups over time, as far as anybody looked: small rings that are forgotten with the process."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from typing import Any

from penstock.gateway.kafka.groups import CommittedOffset

POINTS_MAX = 450
GROUPS_MAX = 200
INTERVAL_MS = 1_500


class LagHistory:
    """The last points of the groups that were looked at last."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, deque[tuple[int, dict[str, int]]]] = OrderedDict()

    def note(self, group: str, lags: list[CommittedOffset]) -> None:
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
            by_topic[lag.topic] = by_topic.get(lag.topic, 0) + lag.lag
        points.append((now_ms, by_topic))

    def forget(self, group: str) -> None:
        """The group is no more."""
        self._groups.pop(group, None)

    def show(self, group: str) -> list[dict[str, Any]]:
        """Points, the oldest first."""
        return [{"at_ms": at_ms, "lags": lags} for at_ms, lags in self._groups.get(group, ())]
