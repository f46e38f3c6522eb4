"""Fixtures for tests of the console: three nodes, a gateway, and pages in a real browser."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from console_browser import Pages

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TOPIC_TIMEOUT_S = 10.0


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Cluster]:
    """A cluster that loses nothing with one node."""
    with Cluster(nodes=3, start_timeout_s=90) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gateway(three_nodes: Cluster) -> Iterator[GatewayProcess]:
    """The gateway next to it."""
    with GatewayProcess(three_nodes.bootstrap_servers) as process:
        yield process


@pytest.fixture
def rest(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """A client of the routes that the pages call."""
    with httpx.Client(base_url=gateway.rest, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or whatever of its family is installed.

    Playwright runs a loop in this thread while it is there: tests of other rooms cannot have theirs until it is gone.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def pages(browser: Any, gateway: GatewayProcess) -> Iterator[Pages]:
    """Pages that are closed at the end; scripts that fail in them fail the test."""
    opened = Pages(browser, gateway.rest)
    yield opened
    opened.close()
    assert opened.errors == []


@pytest.fixture
def new_topic(rest: httpx.Client) -> Callable[..., str]:
    """Makes topics that no other test uses."""

    def make(prefix: str = "topic", partitions: int = 3, name: str = "") -> str:
        name = name or f"{prefix}-{uuid.uuid4().hex[:8]}"
        body = {"topic_name": name, "partitions_count": partitions, "replication_factor": 3}
        # 404 is a broker that was asked about the topic before it had on_delivery of it.
        assert rest.post("/v3/clusters/-/topics", json=body).status_code in (201, 404)
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while rest.get(f"/api/v1/topics/{name}").status_code != 200:
            assert time.monotonic() < deadline, f"{name} is not there"
            time.sleep(0.1)
        return name

    return make
