"""Runs a pipeline: starts and watches its queries, which continue without records that a step fails on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.client.settings import read_settings
from penstock.spark.fetching import OffsetRange
from penstock.spark.pipelines.bad_records import BadRecordFinder, NotFound, failed_ranges, is_unavailable, reason_of
from penstock.spark.pipelines.build import Builder
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.external_sources import polled_tables
from penstock.spark.pipelines.jdbc_polling import polling
from penstock.spark.pipelines.metrics import serve_metrics
from penstock.spark.pipelines.progress import PipelineStatus, ProgressSums, QueryStatus
from penstock.spark.pipelines.reporting import reported
from penstock.spark.pipelines.spec import Pipeline, Sink, Source, seconds_of
from penstock.spark.pipelines.state_files import (
    process_started,
    running,
    state_directory,
    state_file,
    stop,
    write_state,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["PipelineStatus", "QueryStatus", "run", "running", "state_directory", "stop"]

POLL_SECONDS = 0.5
METRICS_HOST = "127.0.0.1"
# A query that fails because an external system is down is restarted this often, with pauses that double; the count
# starts again after it has run for a while.
RESTARTS_MAX = 6
RESTART_PAUSE_SECONDS = 1.0
STEADY_SECONDS = 120.0


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool,
    show: Callable[[PipelineStatus], None],
    wanted: Callable[[], bool] = lambda: True,
    metrics_port: int | None = None,
    metrics_host: str = METRICS_HOST,
) -> None:
    """Run until all current data is processed (`once`), a query fails, or `wanted` returns False.

    `show` is called about twice a second. A record that a step fails on goes to its source's dead-letter topic; any
    other failure raises PipelineError at the line of its sink or source. With `metrics_port` (0: any free port) metrics
    are served for Prometheus; raises PortTaken if the port is not available.
    """
    status = PipelineStatus(pipeline.name, pipeline.file, os.getpid(), time.time(), process_started(os.getpid()) or 0)
    status.metrics = f"{spark.sparkContext.uiWebUrl}/metrics/prometheus/" if _has_interface(spark) else ""
    queries: list[_Query] = []
    with ExitStack() as stack:
        if metrics_port is not None:
            status.metrics = stack.enter_context(serve_metrics(lambda: status, metrics_host, metrics_port))
        check_polling = stack.enter_context(polling(polled_tables(spark, pipeline), once, seconds_of(pipeline.trigger)))
        stack.callback(_stop_all, queries)
        queries.extend(_queries(spark, pipeline, once))
        for query in queries:
            query.start()
        stack.enter_context(state_file(status))
        report = stack.enter_context(reported(read_settings(pipeline.client_properties), status))
        while wanted():
            status.queries = [query.status() for query in queries]
            status.updated = time.time()
            write_state(status)
            report()
            show(status)
            check_polling()
            for query in queries:
                query.check()
            if not any(query.is_active for query in queries):
                break
            time.sleep(POLL_SECONDS)


class _Query:
    """One query of a pipeline: a sink's, or that of a source's dead letters."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, once: bool, part: Sink | Source, writer: DataStreamWriter
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._once = once
        self._part = part
        self._writer = writer
        self.name = f"{'sinks' if isinstance(part, Sink) else 'dead_letters'}/{part.name}"
        self._query: StreamingQuery | None = None
        self._sums = ProgressSums(f"{pipeline.name}/{self.name}")
        self._skipped: list[OffsetRange] = []
        self._skipped_count = 0
        self._error = ""
        self._started = 0.0
        self._restarts = 0
        self._restart_at: float | None = None

    @property
    def is_active(self) -> bool:
        return self._restart_at is not None or (self._query is not None and self._query.isActive)

    def start(self) -> None:
        writer = self._writer.option("checkpointLocation", f"{self._pipeline.checkpoint_directory}/{self.name}")
        writer = writer.queryName(f"{self._pipeline.name}/{self.name}")
        if self._once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self._pipeline.trigger)
        self._started, self._restart_at = time.monotonic(), None
        try:
            self._query = writer.start()
        except Exception as error:
            raise self._failed(error) from error

    def stop(self) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def status(self) -> QueryStatus:
        assert self._query is not None
        status = self._sums.count(self._query)
        status.set_aside, status.error = self._skipped_count, self._error
        return status

    def check(self) -> None:
        """Check whether the query failed: restart it without the records that it failed on, or raise PipelineError.

        If an external system is down, it is restarted a little later.
        """
        assert self._query is not None
        if self._restart_at is not None:
            if time.monotonic() >= self._restart_at:
                self.start()
            return
        problem = self._query.exception() if not self._query.isActive else None
        if problem is None:
            return
        self._error = reason_of(problem)
        if is_unavailable(problem) and self._wait():
            return
        # Only topics can be read again to find the record.
        if not isinstance(self._part, Sink) or any(source.format for source in self._pipeline.sources):
            raise self._failed(problem)
        try:
            self._restart_without(self._part, failed_ranges(self._query))
        except NotFound as why:
            raise self._failed(problem, f"no record can be skipped for it: {why}") from problem
        self.start()

    def _wait(self) -> bool:
        """Schedule a restart; False if there were too many."""
        if time.monotonic() - self._started > STEADY_SECONDS:
            self._restarts = 0
        if self._restarts >= RESTARTS_MAX:
            return False
        self._restart_at = time.monotonic() + RESTART_PAUSE_SECONDS * 2**self._restarts
        self._restarts += 1
        return True

    def _restart_without(self, sink: Sink, failed: list[OffsetRange]) -> None:
        finder = BadRecordFinder(self._spark, self._pipeline, sink, failed)
        try:
            found = finder.find()
            for source in self._pipeline.sources:
                if source.name in found:
                    finder.write_dead_letters(source, found[source.name], f"the input of {sink.name}")
        finally:
            finder.close()
        # Records that were skipped before are in completed micro-batches, or are found again.
        self._skipped = [each.offsets for bad in found.values() for each in bad]
        self._skipped_count += len(self._skipped)
        self._writer = Builder(self._spark, self._pipeline, skipped=self._skipped).writer(sink)

    def _failed(self, error: Exception, advice: str = "") -> PipelineError:
        what = f"{self._pipeline.name}/{self.name} failed: {reason_of(error)}"
        fix = "fix the cause and run it again: it continues where it stopped"
        return PipelineError(self._pipeline.file, self._part.line, what, f"{fix} ({advice})" if advice else fix)


def _queries(spark: SparkSession, pipeline: Pipeline, once: bool) -> Iterator[_Query]:
    builder = Builder(spark, pipeline)
    for sink in pipeline.sinks:
        yield _Query(spark, pipeline, once, sink, builder.writer(sink))
    for source in pipeline.sources:
        letters = builder.dead_letters(source)
        if letters is not None:
            yield _Query(spark, pipeline, once, source, builder.dead_letter_writer(source, letters))


def _stop_all(queries: list[_Query]) -> None:
    for query in queries:
        query.stop()


def _has_interface(spark: SparkSession) -> bool:
    context = getattr(spark, "sparkContext", None)
    return context is not None and context.uiWebUrl is not None
