"""The console's page of tenants: what they have and may have, and changes to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import httpx
import pytest
from console_browser import Pages

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.core.security import tenant_setup
from penstock.testing import Cluster


@pytest.fixture
def tenant(three_nodes: Cluster, new_topic: Callable[..., str]) -> str:
    """A tenant with a topic, and room for four."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with ClusterClient(read_settings({"bootstrap.servers": three_nodes.bootstrap_servers})) as client:
        limits = {"tenant_topics": 4.0, "tenant_storage_bytes": 1e9, "producer_byte_rate": 2e6}
        (entry,) = client.ask(tenant_setup.limit(name, limits)).entries
        assert entry.error_code == 0
    new_topic(name=f"{name}.orders", partitions=3)
    return name


def test_a_tenant_is_shown_with_what_it_has_and_may_have(pages: Pages, rest: httpx.Client, tenant: str) -> None:
    page = pages.open("tenants")
    row = page.locator(f"tr:has-text('{tenant}')")
    row.wait_for()
    page.wait_for_function("name => document.body.innerText.includes(name)", arg=tenant)
    text = row.inner_text()
    assert "1 of 4" in text
    assert "of 1.0 GB" in text
    assert "of 6.0 MB" in text, "a rate of each broker, for three of them"
    assert row.locator("[role=meter]").count() == 3
    (shown,) = [one for one in rest.get("/api/v1/tenants").json()["tenants"] if one["name"] == tenant]
    assert shown["topics"] == {"used": 1, "limit": 4}
    assert shown["partitions"] == {"used": 3, "limit": None}


def test_limits_are_changed_on_the_page(pages: Pages, rest: httpx.Client, tenant: str) -> None:
    page = pages.open("tenants")
    page.click(f"tr:has-text('{tenant}') button:has-text('Change')")
    page.fill("dialog label:has-text('Topics') input", "40")
    page.fill("dialog label:has-text('Storage') input", "")
    page.click("dialog button:has-text('Save')")
    page.locator(f"tr:has-text('{tenant}'):has-text('1 of 40')").wait_for()
    (shown,) = [one for one in rest.get("/api/v1/tenants").json()["tenants"] if one["name"] == tenant]
    assert shown["storage_bytes"]["limit"] is None
    assert shown["produce_rate"]["limit"] == 2_000_000


def test_what_cannot_be_created_is_said_and_leaves_nothing(pages: Pages, rest: httpx.Client) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    page = pages.open("tenants")
    page.locator("[data-new]").wait_for()
    page.keyboard.press("n")
    page.fill("dialog input[data-first]", name)
    page.click("dialog button:has-text('Create')")
    # This cluster has no access lists, without which there are no tenants.
    page.locator("dialog [role=alert]:has-text('No Authorizer is configured')").wait_for()
    assert name not in {one["name"] for one in rest.get("/api/v1/tenants").json()["tenants"]}


@pytest.mark.parametrize(
    ("body", "status"),
    [({"topics": 1}, 404), ({"topics": -1}, 400), ({"planets": 1}, 400), ({}, 400), ({"topics": 1.5}, 400)],
)
def test_limits_that_mean_nothing_are_refused(rest: httpx.Client, body: dict[str, object], status: int) -> None:
    assert rest.put("/api/v1/tenants/nobody/limits", json=body).status_code == status
