"""Fixtures for tests of the console: three nodes, a gateway, and pages in a real browser."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from console_process import ConsoleProcess

from penstock.testing import Cluster

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# What a page may wait for on a busy machine.
PATIENCE_MS = 20_000


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Cluster]:
    """A cluster that loses nothing with one node."""
    with Cluster(nodes=3, start_timeout_s=90) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gateway(three_nodes: Cluster) -> Iterator[ConsoleProcess]:
    """The gateway next to it."""
    with ConsoleProcess(three_nodes.bootstrap_servers) as process:
        yield process


@pytest.fixture
def rest(gateway: ConsoleProcess) -> Iterator[httpx.Client]:
    """A client of the routes that the pages call."""
    with httpx.Client(base_url=gateway.address, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or whatever of its family is installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


class Pages:
    """Opens pages of the console, and keeps what they asked for and what went wrong in them."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser = browser
        self._address = address
        self._contexts: list[Any] = []
        self.requested: list[str] = []
        self.errors: list[str] = []

    def open(self, place: str = "", **options: Any) -> Any:
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto(f"{self._address}/console/#/{place}")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def pages(browser: Any, gateway: ConsoleProcess) -> Iterator[Pages]:
    """Pages that are closed at the end; scripts that fail in them fail the test."""
    opened = Pages(browser, gateway.address)
    yield opened
    opened.close()
    assert opened.errors == []


@pytest.fixture
def new_topic(rest: httpx.Client) -> Callable[..., str]:
    """Makes topics that no other test uses."""

    def make(prefix: str = "topic", partitions: int = 3) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        body = {"topic_name": name, "partitions_count": partitions, "replication_factor": 3}
        assert rest.post("/v3/clusters/-/topics", json=body).status_code == 201
        return name

    return make
