"""A pipeline at work: its queries, what they are doing now, and the note that lets others find and stop it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.build import Builder
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_SECONDS = 0.5
STOP_TIMEOUT_SECONDS = 60.0
# Zombie and dead: the process has ended, only its parent does not know yet.
ENDED_STATES = "ZX"


@dataclass(slots=True)
class QueryStatus:
    """What one query did last."""

    name: str
    batch: int = -1
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: int = 0
    active: bool = True


@dataclass(slots=True)
class PipelineStatus:
    """What is noted about a pipeline that runs."""

    name: str
    file: str
    pid: int
    started: float
    process_started: int
    updated: float = 0.0
    metrics: str = ""
    queries: list[QueryStatus] = field(default_factory=list)


def state_directory() -> Path:
    """Where notes about running pipelines are kept."""
    base = os.environ.get("PENSTOCK_STATE") or os.environ.get("XDG_STATE_HOME")
    home = Path(base) if base else Path.home() / ".local" / "state"
    return home / "penstock" / "pipelines"


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool,
    show: Callable[[PipelineStatus], None],
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Run until everything there is was processed (`once`), a query fails, or `wanted` says no more.

    `show` is called about twice a second. A failure comes out as PipelineError at the line of its sink or source.
    """
    status = PipelineStatus(pipeline.name, pipeline.file, os.getpid(), time.time(), _process_started(os.getpid()) or 0)
    status.metrics = f"{spark.sparkContext.uiWebUrl}/metrics/prometheus/" if _has_interface(spark) else ""
    queries = list(_start(spark, pipeline, once))
    rows: dict[str, int] = {}
    batches: dict[str, int] = {}
    with _noted(status):
        try:
            while wanted():
                status.queries = [_status(query, rows, batches) for query, _ in queries]
                status.updated = time.time()
                _note(status)
                show(status)
                for query, line in queries:
                    _check(pipeline, query, line)
                if not any(query.isActive for query, _ in queries):
                    break
                time.sleep(POLL_SECONDS)
        finally:
            for query, _ in queries:
                if query.isActive:
                    query.stop()


def _start(spark: SparkSession, pipeline: Pipeline, once: bool) -> Iterator[tuple[StreamingQuery, int]]:
    builder = Builder(spark, pipeline)
    writers: list[tuple[str, int, DataStreamWriter]] = [
        (f"sinks/{sink.name}", sink.line, builder.writer(sink)) for sink in pipeline.sinks
    ]
    for source in pipeline.sources:
        letters = builder.dead_letters(source)
        if letters is not None:
            writers.append((f"dead_letters/{source.name}", source.line, builder.dead_letter_writer(source, letters)))
    for name, line, writer in writers:
        place = pipeline.checkpoint.rstrip("/")
        if "://" not in place:
            place = str(pipeline.directory / place)
        writer = writer.option("checkpointLocation", f"{place}/{name}").queryName(f"{pipeline.name}/{name}")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=pipeline.trigger)
        try:
            yield writer.start(), line
        except Exception as error:
            raise _failed(pipeline, line, name, error) from error


def _check(pipeline: Pipeline, query: StreamingQuery, line: int) -> None:
    problem = query.exception() if not query.isActive else None
    if problem is not None:
        raise _failed(pipeline, line, str(query.name), problem)


def _failed(pipeline: Pipeline, line: int, name: str, error: Exception) -> PipelineError:
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    # A failure in Python ends with the exception itself; what stands before is Spark's way to it.
    said = next((each for each in lines if "Error: " in each or "DataLost: " in each or "Failed: " in each), "")
    reason = said or (lines or ["no reason given"])[0]
    return PipelineError(
        pipeline.file, line, f"{name} failed: {reason}", "mend the cause, then run it again: it goes on"
    )


def _status(query: StreamingQuery, rows: dict[str, int], batches: dict[str, int]) -> QueryStatus:
    name = str(query.name)
    status = QueryStatus(name, active=query.isActive)
    for progress in query.recentProgress:
        found: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
        batch = int(found["batchId"])
        if batch > batches.get(name, -1) and int(found["numInputRows"]):
            batches[name] = batch
            rows[name] = rows.get(name, 0) + int(found["numInputRows"])
        status.batch = batch
        status.rows_per_second = float(found.get("processedRowsPerSecond") or 0.0)
        status.batch_ms = int(found["durationMs"].get("triggerExecution", 0))
        status.lag = sum(map(_lag, found["sources"]))
    status.rows = rows.get(name, 0)
    return status


def _lag(source: dict[str, Any]) -> int:
    """Records that the source has and the query has not taken yet; 0 for sources that don't say."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def _offsets(found: Any) -> dict[tuple[str, str], int]:
    parsed = json.loads(found) if isinstance(found, str) else found
    if not isinstance(parsed, dict):
        return {}
    return {
        (topic, partition): int(offset)
        for topic, partitions in parsed.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    }


def _has_interface(spark: SparkSession) -> bool:
    context = getattr(spark, "sparkContext", None)
    return context is not None and context.uiWebUrl is not None


@contextmanager
def _noted(status: PipelineStatus) -> Iterator[None]:
    _note(status)
    try:
        yield
    finally:
        _path(status.name).unlink(missing_ok=True)


def _note(status: PipelineStatus) -> None:
    path = _path(status.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(status)), "utf-8")
    partial.replace(path)


def _path(name: str) -> Path:
    return state_directory() / f"{name}.json"


def running() -> list[PipelineStatus]:
    """The pipelines of this user that run on this machine."""
    found = []
    for path in sorted(state_directory().glob("*.json")):
        try:
            fields = json.loads(path.read_text("utf-8"))
            queries = [QueryStatus(**each) for each in fields.pop("queries")]
            status = PipelineStatus(**fields, queries=queries)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if _process_started(status.pid) == status.process_started:
            found.append(status)
    return found


def stop(name: str, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> bool:
    """Ask a running pipeline to end; False if none of that name runs, TimeoutError if it does not end."""
    chosen = [status for status in running() if status.name == name]
    for status in chosen:
        os.kill(status.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while _process_started(status.pid) == status.process_started:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} (pid {status.pid}) did not end within {timeout_seconds:.0f} s")
            time.sleep(0.1)
    return bool(chosen)


def _process_started(pid: int) -> int | None:
    """When a living process began, in the kernel's ticks: a pid that was given out again is another process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in ENDED_STATES else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
