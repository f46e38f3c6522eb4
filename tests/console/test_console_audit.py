"""The page of the audit trail: what happened, newest first, and what narrows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from console_browser import Pages

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess


@pytest.fixture(scope="module")
def audited() -> Iterator[GatewayProcess]:
    """A gateway of one node that keeps an audit trail."""
    with (
        Cluster(settings={"penstock.audit.enable": "true"}) as cluster,
        GatewayProcess(cluster.bootstrap_servers) as process,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "an-admin"})
        for name in ("orders", "payments"):
            admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "86400000"})])[name].result(30)
        admin.delete_topics(["payments"])["payments"].result(30)
        yield process


def events(address: str, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{address}/api/v1/audit", params=filters, timeout=30).json()["events"]
    return found


def test_the_trail_is_shown_and_narrowed(audited: GatewayProcess, browser: Any) -> None:
    deadline = time.monotonic() + 60
    while not events(audited.rest, api="DeleteTopics"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    everything = events(audited.rest)
    assert [one["offset"] for one in everything] == sorted((one["offset"] for one in everything), reverse=True)
    assert [one["resource"] for one in events(audited.rest, api="DeleteTopics")] == ["payments"]
    assert {one["resource"] for one in events(audited.rest, search="ORDERS")} == {"orders"}
    assert events(audited.rest, type="denied") == []
    assert len(events(audited.rest, limit=1)) == 1
    assert httpx.get(f"{audited.rest}/api/v1/audit", params={"type": "gossip"}, timeout=30).status_code == 400

    pages = Pages(browser, audited.rest)
    page = pages.open("audit")
    row = page.locator("tr[data-row]", has_text="orders").first
    row.wait_for()
    row.locator("td").first.click()
    opened = page.locator("[data-opened]")
    opened.wait_for()
    assert "an-admin" in opened.inner_text()
    assert "86400000" in opened.inner_text()
    page.get_by_role("button", name="DeleteTopics").first.click()
    page.locator("[data-filters]", has_text="api: DeleteTopics").wait_for()
    # The filter is shown at once, what it leaves out goes when the answer is there.
    page.locator("tr[data-row]", has_text="CreateTopics").first.wait_for(state="detached")
    page.locator("tr[data-row]", has_text="payments").wait_for()
    page.wait_for_function("document.querySelectorAll('tr[data-row]').length === 1")
    page.locator("[data-filters] button").click()
    page.get_by_label("Type").select_option("denied")
    page.locator(".empty", has_text="is like that").wait_for()
    pages.close()
    assert pages.errors == []


def test_without_a_trail_the_page_shows_how_to_keep_one(pages: Pages) -> None:
    page = pages.open("audit")
    page.locator(".empty", has_text="penstock.audit.enable=true").wait_for()
