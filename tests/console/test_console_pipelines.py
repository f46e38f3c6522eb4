"""Pipelines report to their cluster, and the console shows it, wherever they run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from console_browser import Pages

from penstock.client.settings import ConnectionSettings, read_settings
from penstock.spark.pipelines.progress import PipelineStatus, QueryStatus
from penstock.spark.pipelines.reporting import TOPIC, reported
from penstock.testing import Cluster

TIMEOUT_S = 30.0


@pytest.fixture
def settings(three_nodes: Cluster) -> ConnectionSettings:
    return read_settings({"bootstrap.servers": three_nodes.bootstrap_servers})


def status_of(name: str) -> PipelineStatus:
    query = QueryStatus(f"{name}/sinks/sales", batch=7, rows=1200, rows_per_second=340.0, batch_ms=90, lag=55)
    return PipelineStatus(name, f"{name}.yaml", os.getpid(), time.time(), 1, queries=[query])


def shown(rest: httpx.Client, name: str) -> dict[str, Any]:
    answer = rest.get("/api/v1/pipelines")
    assert answer.status_code == 200, answer.text
    return next((dict(row) for row in answer.json()["pipelines"] if row["name"] == name), {})


def wait_for(tell: Callable[[], None], rest: httpx.Client, name: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while (row := shown(rest, name)).get("state") != state:
        assert time.monotonic() < deadline, row
        tell()
        time.sleep(0.2)
    return row


def test_a_running_pipeline_is_seen_and_its_end_too(
    settings: ConnectionSettings, rest: httpx.Client, pages: Pages
) -> None:
    with reported(settings, status_of("shop")) as tell:
        row = wait_for(tell, rest, "shop", "running")
        assert row["queries"][0]["lag"] == 55
        page = pages.open("pipelines")
        page.wait_for_selector("section:has-text('shop') .tag:has-text('running')")
        text = page.inner_text("section:has(h2:text-is('shop'))")
        assert "sinks/sales" in text
        assert "1,200" in text
        assert "55 behind" in text
    assert shown(rest, "shop")["state"] == "ended"
    page.wait_for_selector("section:has-text('shop') .tag:has-text('ended')")


def test_a_failure_shows_the_reason(settings: ConnectionSettings, rest: httpx.Client, pages: Pages) -> None:
    def fail() -> None:
        with reported(settings, status_of("leak")) as tell:
            wait_for(tell, rest, "leak", "running")
            raise RuntimeError("no table of customers")

    with pytest.raises(RuntimeError):
        fail()
    assert shown(rest, "leak")["error"] == "no table of customers"
    pages.open("pipelines").wait_for_selector("section:has-text('leak') .note:has-text('no table of customers')")


def test_silent_pipelines_are_marked_and_invalid_reports_ignored(
    settings: ConnectionSettings, three_nodes: Cluster, rest: httpx.Client, pages: Pages
) -> None:
    with reported(settings, status_of("loud")) as tell:
        wait_for(tell, rest, "loud", "running")
    producer = Producer({"bootstrap.servers": three_nodes.bootstrap_servers})
    long_ago = {"state": "running", "updated": time.time() - 3600, "started": 0, "host": "far", "pid": 1, "error": ""}
    for key, value in (
        (b"quiet", json.dumps({**long_ago, "queries": []})),
        (b"noise", b"\xff{"),
        (b"list", b"[1]"),
        (b"deep", b"[" * 100_000),
        (b"half", b'{"state": "running"}'),
    ):
        producer.produce(TOPIC, key=key, value=value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    names = {row["name"]: row["state"] for row in rest.get("/api/v1/pipelines").json()["pipelines"]}
    assert names["quiet"] == "silent"
    assert not {"noise", "list", "deep", "half"} & set(names)
    pages.open("pipelines").wait_for_selector("section:has-text('quiet') .note:has-text('look on far')")
