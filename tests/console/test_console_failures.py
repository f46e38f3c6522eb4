"""The console while nodes die: it shows what is wrong, keeps what it showed, and continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from console_browser import Pages

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

pytestmark = pytest.mark.slow
PLACES = ["", "topics", "groups", "schemas", "brokers", "reassignments", "transactions", "dead-letters"]


WHOLE_TIMEOUT_S = 90.0


@pytest.fixture
def whole(three_nodes: Cluster, rest: httpx.Client) -> Iterator[Cluster]:
    """Nodes that the test may kill: they run again afterwards, and have caught up, or the next test would meet it."""
    yield three_nodes
    three_nodes.start()
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    while (shown := rest.get("/api/v1/cluster").json())["status"] != "ok":
        assert time.monotonic() < deadline, f"the cluster is not whole again: {shown}"
        time.sleep(0.2)


def rows(page: Any) -> int:
    return int(page.evaluate("document.querySelectorAll('tbody tr[data-row]').length"))


def test_every_page_works_while_a_node_is_dead(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str], whole: Cluster
) -> None:
    topic = new_topic("survivor")
    for number in range(6):
        body = {"partition_id": number % 3, "value": {"type": "JSON", "data": number}}
        assert rest.post(f"/v3/clusters/-/topics/{topic}/records", json=body).status_code == 200
    page = pages.open()
    page.wait_for_selector("[data-status=ok]")
    victim = rest.get("/api/v1/cluster").json()["controller"]
    whole.kill(victim)
    page.wait_for_selector(f"[data-problem]:has-text('broker {victim}')")
    page.wait_for_selector("[data-status=degraded]")
    for place in PLACES:
        page.goto(page.url.partition("#")[0] + f"#/{place}")
        page.wait_for_selector("h1")
        page.wait_for_function("() => !document.body.innerText.includes('Loading …')")
        page.wait_for_selector(f"[data-problem]:has-text('broker {victim} is down')")
        assert page.locator("[data-trouble]").count() == 0, page.inner_text("main")
    page.goto(page.url.partition("#")[0] + f"#/topics/{topic}")
    page.wait_for_function("() => document.querySelectorAll('[data-message]').length === 6")
    whole.start(victim)
    page.goto(page.url.partition("#")[0] + "#/")
    page.wait_for_selector("[data-status=ok]", timeout=60_000)
    assert page.locator("[data-problem]").count() == 0


def test_tail_continues_when_the_leader_is_killed(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str], whole: Cluster
) -> None:
    topic = new_topic("tailed", 1)
    page = pages.open(f"topics/{topic}?live=1")
    page.wait_for_selector("[data-tail=live]")
    page.wait_for_timeout(1500)
    whole.kill(rest.get(f"/api/v1/topics/{topic}").json()["partition_list"][0]["leader"])
    body = {"value": {"type": "STRING", "data": "after the fall"}}
    assert rest.post(f"/v3/clusters/-/topics/{topic}/records", json=body).status_code == 200
    page.wait_for_selector("[data-message]:has-text('after the fall')", timeout=30_000)


def test_without_a_majority_pages_keep_their_data_and_show_that(
    pages: Pages, new_topic: Callable[..., str], whole: Cluster
) -> None:
    new_topic("kept")
    page = pages.open("topics")
    page.wait_for_selector("tr[data-row]")
    before = rows(page)
    for node in (1, 2):
        whole.kill(node)
    page.wait_for_selector("[data-problem].error", timeout=40_000)
    assert rows(page) >= before
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_selector("[data-trouble]:has-text('no broker answers')", timeout=40_000)
    assert page.locator("tr[data-broker]").count() == 3


def test_gateway_that_is_gone_leaves_the_last_data(browser: Any, three_nodes: Cluster) -> None:
    with GatewayProcess(three_nodes.bootstrap_servers) as gateway:
        pages = Pages(browser, gateway.rest)
        page = pages.open("brokers")
        page.wait_for_selector("tr[data-broker]")
        gateway.close()
        page.wait_for_selector("[data-problem]:has-text('the gateway does not answer')")
        page.wait_for_selector("[data-problem]:has-text('What is shown is from')")
        assert page.locator("tr[data-broker]").count() == 3
        pages.close()
