"""Serves a running pipeline's metrics for Prometheus at /metrics on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from penstock.core.metrics.sheet import TEXT_TYPE, Metric, Sheet
from penstock.spark.pipelines.progress import PipelineStatus, QueryStatus

PATH = "/metrics"
REQUEST_TIMEOUT_SECONDS = 10
ERROR_CHARACTERS_MAX = 300
_QUERY = ("pipeline", "query")

UP = Metric("penstock_pipeline_up", "gauge", "1 while every query of the pipeline runs.", ("pipeline",))
STARTED = Metric("penstock_pipeline_start_time_seconds", "gauge", "When the pipeline was started.", ("pipeline",))
ACTIVE = Metric("penstock_pipeline_query_active", "gauge", "1 while the query runs.", _QUERY)
BATCHES = Metric("penstock_pipeline_batch", "gauge", "The number of the latest micro-batch; -1 before any.", _QUERY)
INPUT = Metric("penstock_pipeline_input_rows_total", "counter", "Rows read since the pipeline was started.", _QUERY)
OUTPUT = Metric("penstock_pipeline_output_rows_total", "counter", "Rows written, for sinks that count them.", _QUERY)
INPUT_RATE = Metric(
    "penstock_pipeline_input_rows_per_second", "gauge", "Rows that arrived a second, in the latest batch.", _QUERY
)
RATE = Metric(
    "penstock_pipeline_processed_rows_per_second", "gauge", "Rows processed a second, in the latest batch.", _QUERY
)
DURATION = Metric("penstock_pipeline_batch_duration_seconds", "gauge", "How long the latest batch took.", _QUERY)
LAG = Metric(
    "penstock_pipeline_lag_records", "gauge", "Records of a topic that the query has not taken.", (*_QUERY, "topic")
)
LETTERS = Metric(
    "penstock_pipeline_dead_letters_total", "counter", "Records that went to dead letters.", ("pipeline", "query")
)
STATE = Metric("penstock_pipeline_state_rows", "gauge", "Rows kept for windows, joins and duplicates.", _QUERY)
WATERMARK = Metric(
    "penstock_pipeline_watermark_seconds", "gauge", "The watermark, in seconds since 1970; absent without one.", _QUERY
)
ERROR = Metric("penstock_pipeline_last_error", "gauge", "1, with the latest failure's reason.", (*_QUERY, "error"))


class PortTaken(Exception):
    """The metrics cannot be served at the given address."""


def sheet_of(status: PipelineStatus) -> Sheet:
    """A pipeline's current metrics."""
    sheet = Sheet()
    sheet.add(UP, int(all(query.active for query in status.queries)), status.name)
    sheet.add(STARTED, status.started, status.name)
    for query in status.queries:
        _add_query(sheet, status.name, query)
    return sheet


def _add_query(sheet: Sheet, pipeline: str, query: QueryStatus) -> None:
    labels = (pipeline, query.name.removeprefix(f"{pipeline}/"))
    figures = {
        ACTIVE: int(query.active),
        BATCHES: query.batch,
        INPUT: query.rows,
        OUTPUT: query.rows_written,
        INPUT_RATE: query.input_rows_per_second,
        RATE: query.rows_per_second,
        DURATION: query.batch_ms / 1000,
        STATE: query.state_rows,
        LETTERS: query.rows_written if labels[1].startswith("dead_letters/") else query.set_aside,
    }
    for metric, value in figures.items():
        sheet.add(metric, value, *labels)
    for topic, behind in query.lag_by_topic.items():
        sheet.add(LAG, behind, *labels, topic)
    if query.watermark:
        sheet.add(WATERMARK, query.watermark, *labels)
    if query.error:
        sheet.add(ERROR, 1, *labels, query.error[:ERROR_CHARACTERS_MAX])


@contextmanager
def serve_metrics(latest: Callable[[], PipelineStatus], host: str, port: int) -> Iterator[str]:
    """Serve a pipeline's metrics while the block runs; yields the address. Raises PortTaken if it is in use.

    `latest` is called from the server's own thread.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_SECONDS

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == PATH
            body = b"".join(sheet_of(latest()).render()) if found else f"the metrics are at {PATH}\n".encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", TEXT_TYPE if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Scrapes are not logged."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise PortTaken(f"{host}:{port} cannot be bound: {error.strerror or error}") from None
    thread = Thread(target=server.serve_forever, name="pipeline-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
