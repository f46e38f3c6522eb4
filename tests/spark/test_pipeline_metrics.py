"""A pipeline's metrics: sums of Spark's progress reports, and the text for Prometheus."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from penstock.spark.pipelines.metrics import PortTaken, serve_metrics
from penstock.spark.pipelines.progress import PipelineStatus, ProgressSums, QueryStatus


def report(batch: int, rows: int, *, end: int, latest: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "inputRowsPerSecond": 20.0,
        "processedRowsPerSecond": 40.0,
        "durationMs": {"triggerExecution": 250},
        "sources": [
            {
                "endOffset": json.dumps({"orders": {"0": end, "1": 3}}),
                "latestOffset": json.dumps({"orders": {"0": latest, "1": 5}}),
            },
            {"endOffset": None, "latestOffset": None},
        ],
        "sink": {"numOutputRows": rows - 1 if rows else -1},
        "stateOperators": [{"numRowsTotal": 4}, {"numRowsTotal": 5}],
        "eventTime": {"watermark": "2026-11-15T10:00:00.000Z"},
    }


class Reports:
    """A query with reports of its own."""

    def __init__(self, run: str, *reports: dict[str, Any]) -> None:
        self.runId = run
        self.recentProgress = list(reports)
        self.isActive = True


def test_reports_are_counted_once_and_over_restarts() -> None:
    counting = ProgressSums("shop/sinks/out")
    first = Reports("a", report(0, 10, end=10, latest=10))
    counting.count(first)  # type: ignore[arg-type]
    first.recentProgress.append(report(1, 5, end=15, latest=40))
    counting.count(first)  # type: ignore[arg-type]
    status = counting.count(first)  # type: ignore[arg-type]
    assert (status.rows, status.rows_written, status.batch) == (15, 13, 1)
    assert (status.lag_by_topic, status.lag) == ({"orders": 27}, 27)
    assert (status.state_rows, status.watermark) == (9, 1_794_736_800.0)
    # A restarted query repeats the number of the batch that failed; one that is idle reports without rows.
    again = Reports("b", report(2, 7, end=22, latest=22), report(3, 0, end=22, latest=22))
    status = counting.count(again)  # type: ignore[arg-type]
    assert (status.rows, status.rows_written, status.batch, status.lag) == (22, 19, 3, 2)


def test_metrics_are_serve_metrics_as_text() -> None:
    sink = QueryStatus("shop/sinks/out", 3, rows=22, lag_by_topic={"orders": 2}, batch_ms=250, watermark=7.5)
    sink.set_aside, sink.error = 1, 'said "no"'
    letters = QueryStatus("shop/dead_letters/orders", rows=22, rows_written=4, active=False)
    status = PipelineStatus("shop", "shop.yaml", 1, 1000.0, 1, queries=[sink, letters])
    with serve_metrics(lambda: status, "127.0.0.1", 0) as address:
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(address.replace("metrics", "other"), timeout=10)
        caught.value.close()
    for line in (
        'penstock_pipeline_up{pipeline="shop"} 0',
        'penstock_pipeline_query_active{pipeline="shop",query="sinks/out"} 1',
        'penstock_pipeline_input_rows_total{pipeline="shop",query="sinks/out"} 22',
        'penstock_pipeline_lag_records{pipeline="shop",query="sinks/out",topic="orders"} 2',
        'penstock_pipeline_batch_duration_seconds{pipeline="shop",query="sinks/out"} 0.25',
        'penstock_pipeline_dead_letters_total{pipeline="shop",query="sinks/out"} 1',
        'penstock_pipeline_dead_letters_total{pipeline="shop",query="dead_letters/orders"} 4',
        'penstock_pipeline_watermark_seconds{pipeline="shop",query="sinks/out"} 7.5',
        'penstock_pipeline_last_error{pipeline="shop",query="sinks/out",error="said \\"no\\""} 1',
    ):
        assert line in lines
    assert sum(line.startswith("penstock_pipeline_watermark_seconds") for line in lines) == 1


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        status = PipelineStatus("shop", "shop.yaml", 1, 0.0, 1)
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"), serve_metrics(lambda: status, "127.0.0.1", port):
            pass
