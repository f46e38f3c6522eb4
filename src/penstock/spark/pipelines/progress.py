"""Progress of a pipeline's queries: sums of Spark's own progress reports."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(slots=True)
class QueryStatus:
    """A query's latest progress, and its totals since the pipeline started."""

    name: str
    batch: int = -1
    rows: int = 0
    rows_written: int = 0
    input_rows_per_second: float = 0.0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: int = 0
    lag_by_topic: dict[str, int] = field(default_factory=dict)
    state_rows: int = 0
    watermark: float = 0.0
    set_aside: int = 0
    error: str = ""
    active: bool = True


@dataclass(slots=True)
class PipelineStatus:
    """The state of a running pipeline."""

    name: str
    file: str
    pid: int
    started: float
    process_started: int
    updated: float = 0.0
    metrics: str = ""
    queries: list[QueryStatus] = field(default_factory=list)


class ProgressSums:
    """Sums the progress reports of one query, over its restarts: each is counted once."""

    def __init__(self, name: str) -> None:
        self._latest = QueryStatus(name)
        self._run = ""
        self._counted = -1

    def count(self, query: StreamingQuery) -> QueryStatus:
        """Count the query's progress reports since the last call."""
        status = self._latest
        status.active = query.isActive
        if str(query.runId) != self._run:
            self._run, self._counted = str(query.runId), -1
        for progress in query.recentProgress:
            found: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
            batch = int(found["batchId"])
            if batch > self._counted and int(found["numInputRows"]):
                self._counted = batch
                status.rows += int(found["numInputRows"])
                status.rows_written += max(0, int((found.get("sink") or {}).get("numOutputRows") or 0))
            status.batch = batch
            _describe(status, found)
        return status


def _describe(status: QueryStatus, found: dict[str, Any]) -> None:
    """Set the figures that are not sums."""
    status.input_rows_per_second = float(found.get("inputRowsPerSecond") or 0.0)
    status.rows_per_second = float(found.get("processedRowsPerSecond") or 0.0)
    status.batch_ms = int(found["durationMs"].get("triggerExecution", 0))
    lags: Counter[str] = Counter()
    for source in found["sources"]:
        lags.update(lag_by_topic(source))
    status.lag_by_topic = dict(lags)
    status.lag = sum(lags.values())
    status.state_rows = sum(int(each.get("numRowsTotal") or 0) for each in found.get("stateOperators") or ())
    mark = (found.get("eventTime") or {}).get("watermark")
    if mark:
        status.watermark = max(0.0, datetime.datetime.fromisoformat(mark).timestamp())


def lag_by_topic(source: dict[str, Any]) -> dict[str, int]:
    """Records that a source has and the query has not read yet; empty for sources that do not report offsets."""
    end, latest = offsets_of(source.get("endOffset")), offsets_of(source.get("latestOffset"))
    lags: Counter[str] = Counter()
    for (topic, partition), offset in latest.items():
        lags[topic] += max(0, offset - end.get((topic, partition), 0))
    return dict(lags)


def offsets_of(found: object) -> dict[tuple[str, int], int]:
    """The offsets in a report, by topic and partition; empty if the source is not a topic."""
    parsed = json.loads(found) if isinstance(found, str) else found
    if not isinstance(parsed, dict):
        return {}
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in parsed.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    }
