"""What every member program shares: its orders, its log, and the end of its life.

Orders are one JSON object, the only argument. The log is one JSON object a line, written before anything that depends
on it: a record is in the log before its offset is committed, so a test that kills the member may trust what it reads.

    {"event": "assigned", "partitions": [0, 1], "generation": 3}    revoked and lost look the same
    {"event": "generation", "generation": 3}                        what is owned now is owned in this generation
    {"event": "processed", "partition": 0, "first": 10, "last": 19}
    {"event": "committed", "offsets": {"0": 20}}
    {"event": "refused", "error": "…"}                              a commit that the broker did not take
    {"event": "error", "error": "…"}
    {"event": "closed"}                                             the member has left in good order
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any


class Member:
    """One member's orders and log."""

    def __init__(self) -> None:
        orders: dict[str, Any] = json.loads(sys.argv[1])
        self.name: str = orders["name"]
        self.servers: str = orders["servers"]
        self.topic: str = orders["topic"]
        self.group: str = orders["group"]
        self.protocol: str = orders.get("protocol", "classic")
        self.assignor: str = orders.get("assignor", "range")
        self.instance_id: str | None = orders.get("instance_id")
        self.session_timeout_ms: int = orders.get("session_timeout_ms", 3000)
        self.waits_for_commits: bool = orders.get("waits_for_commits", True)
        self.stopping = False
        self._log = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    @property
    def heartbeat_interval_ms(self) -> int:
        return self.session_timeout_ms // 8

    def stop(self) -> None:
        """Leave the group after the present round."""
        self.stopping = True

    def write(self, event: str, **fields: Any) -> None:
        """Add a line to the log."""
        line = json.dumps({"time": time.time(), "event": event, **fields})
        os.write(self._log, line.encode() + b"\n")

    def processed(self, records: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Log records, given as (partition, offset) in order; returns what is to be committed by partition."""
        runs: dict[int, list[list[int]]] = {}
        for partition, offset in records:
            partition_runs = runs.setdefault(partition, [])
            if partition_runs and partition_runs[-1][1] == offset - 1:
                partition_runs[-1][1] = offset
            else:
                partition_runs.append([offset, offset])
        for partition, partition_runs in runs.items():
            for first, last in partition_runs:
                self.write("processed", partition=partition, first=first, last=last)
        return {partition: partition_runs[-1][1] + 1 for partition, partition_runs in runs.items()}

    def committed(self, offsets: dict[int, int]) -> None:
        """Log a commit that the broker took."""
        self.write("committed", offsets=offsets)
