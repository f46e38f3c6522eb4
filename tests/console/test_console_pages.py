"""The console in Chromium: what people do on its pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from console_browser import Pages

from support.gateway_process import GatewayProcess

PLACES = {
    "": "Overview",
    "topics": "Topics",
    "groups": "Groups",
    "schemas": "Schemas",
    "brokers": "Brokers",
    "reassignments": "Reassignments",
    "transactions": "Transactions",
    "clients": "Clients",
    "tenants": "Tenants",
    "dead-letters": "Dead letters",
    "pipelines": "Pipelines",
    "audit": "Audit",
}
WHOLE_TIMEOUT_MS = 90_000
PHONE = {"viewport": {"width": 390, "height": 844}}


def publish(rest: httpx.Client, topic: str, value: Any, key: str = "k") -> None:
    body = {"key": {"type": "STRING", "data": key}, "value": {"type": "JSON", "data": value}}
    assert rest.post(f"/v3/clusters/-/topics/{topic}/records", json=body).status_code == 200


def test_overview_shows_the_cluster_without_requests_to_other_sites(pages: Pages, gateway: GatewayProcess) -> None:
    page = pages.open()
    # A cluster that has just begun may be catching up.
    page.wait_for_selector("[data-status=ok]", timeout=WHOLE_TIMEOUT_MS)
    page.wait_for_function("() => document.querySelectorAll('svg [data-broker]').length === 3")
    page.wait_for_selector("canvas")
    assert all(url.startswith((gateway.rest, "data:")) for url in pages.requested)


@pytest.mark.parametrize("place", PLACES)
def test_every_page_fits_a_phone_and_a_dark_room(pages: Pages, place: str) -> None:
    page = pages.open(place, **PHONE, color_scheme="dark")
    page.wait_for_selector(f"h1:has-text('{PLACES[place]}')")
    page.wait_for_function("() => !document.body.innerText.includes('Loading …')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(number) for number in re.findall(r"\d+", ground)[:3]) < 60
    page.click("[aria-label=Menu]")
    assert page.locator("nav a:visible").count() >= len(PLACES)


def test_topic_is_created_filled_and_read(pages: Pages, rest: httpx.Client) -> None:
    page = pages.open("topics")
    page.locator("[data-new]").wait_for()
    page.keyboard.press("n")
    page.fill("dialog input[data-first]", "made-in-the-console")
    page.click("dialog button.primary")
    page.wait_for_selector("h1:has-text('made-in-the-console')")
    page.click("[data-new]")
    page.fill("dialog input[data-first]", "first")
    page.fill("dialog textarea >> nth=0", '{"hello": "console"}')
    page.select_option("dialog select >> nth=1", "JSON")
    page.click("dialog button.primary")
    page.wait_for_selector("[data-done]:has-text('offset 0')")
    page.keyboard.press("Escape")
    page.click("[title='Load again']")
    page.click("[data-message]")
    assert '"hello": "console"' in page.inner_text(".detail")
    [message] = rest.get("/api/v1/topics/made-in-the-console/messages").json()["messages"]
    assert message["key"]["text"] == "first"


def test_form_shows_why_a_topic_cannot_be_created(pages: Pages, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    page = pages.open("topics")
    page.click("[data-new]")
    page.fill("dialog input[data-first]", topic)
    page.click("dialog button.primary")
    page.wait_for_selector("dialog [role=alert]:has-text('choose another name')")


def test_live_tail_shows_records_as_they_come(pages: Pages, rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    page = pages.open(f"topics/{topic}")
    page.click("[data-live]")
    page.wait_for_selector("[data-tail=live]")
    # The gateway's consumer needs a moment from the stream's beginning to the end of each partition.
    page.wait_for_timeout(1500)
    for number in range(3):
        publish(rest, topic, {"number": number})
    page.wait_for_function("() => document.querySelectorAll('[data-message]').length === 3")
    assert '"number":2' in page.inner_text("[data-message] >> nth=0").replace(" ", "")
    page.click("[data-live]")
    page.wait_for_selector("[data-tail]", state="detached")


def test_records_are_found_by_content_and_key(pages: Pages, rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for number in range(10):
        publish(rest, topic, {"number": number, "word": "odd" if number % 2 else "even"}, key=f"key-{number}")
    page = pages.open(f"topics/{topic}")
    page.wait_for_function("() => document.querySelectorAll('[data-message]').length === 10")
    page.keyboard.press("/")
    page.keyboard.type("odd")
    page.wait_for_function("() => document.querySelectorAll('[data-message]').length === 5")
    page.fill("[aria-label=Key]", "key-3")
    page.wait_for_function("() => document.querySelectorAll('[data-message]').length === 1")
    # The address holds the search, so that it can be handed on.
    assert "contains=odd" in page.url
    assert "key=key-3" in page.url


def test_keyboard_shortcuts_reach_every_page(pages: Pages, new_topic: Callable[..., str]) -> None:
    topic = new_topic("keyboard")
    page = pages.open()
    page.wait_for_selector("[data-status]")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("h1:has-text('Topics')")
    page.keyboard.press("/")
    page.keyboard.type(topic)
    page.wait_for_function("() => document.querySelectorAll('tr[data-row]').length === 1")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"h1:has-text('{topic}')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog:has-text('next and previous row')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_selector("h1:has-text('Quorum')")


def test_setting_is_changed_and_reset(pages: Pages, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    page = pages.open(f"topics/{topic}/settings")
    row = page.locator("tr:has(code:text-is('retention.ms'))")
    row.get_by_role("button", name="Change").click()
    row.locator("input").fill("3600000")
    row.get_by_role("button", name="Save").click()
    row.get_by_role("button", name="Save").wait_for(state="detached")
    # The broker that is queried next may learn of the change a moment later; the page queries again.
    row.get_by_text("this topic").wait_for()
    assert "1 h" in row.inner_text()
    row.get_by_role("button", name="Default").click()
    row.get_by_text("default", exact=True).wait_for()


def test_group_is_reset_after_a_preview(pages: Pages, rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    for number in range(5):
        publish(rest, topic, number)
    group = f"readers-of-{topic}"
    rest.post(f"/api/v1/consumer-groups/{group}/offsets", json={"topic": topic, "partition": 0, "offset": 5})
    page = pages.open(f"groups/{group}")
    page.wait_for_selector("text=lag 0")
    page.click("[data-new]")
    page.click("dialog >> text=Preview")
    page.wait_for_selector("dialog tbody tr")
    assert page.inner_text("dialog tbody tr").split() == ["0", "5", "0"]
    page.click("dialog button.primary")
    page.wait_for_selector("[data-done]")
    page.keyboard.press("Escape")
    page.wait_for_selector("text=lag 5")


def test_schema_versions_are_checked_and_compared(pages: Pages, rest: httpx.Client) -> None:
    subject = "console-sales-value"
    first = {"type": "record", "name": "Sale", "fields": [{"name": "item", "type": "string"}]}
    rest.post(f"/registry/subjects/{subject}/versions", json={"schema": json.dumps(first)})
    page = pages.open(f"schemas/{subject}")
    page.click("[data-new]")
    fields = [*first["fields"], {"name": "price", "type": "double"}]
    page.fill("dialog textarea", json.dumps({**first, "fields": fields}))
    page.click("dialog >> text=Check compatibility")
    page.wait_for_selector("[data-verdict]:has-text('Not compatible')")
    fields[1]["default"] = 0.0
    page.fill("dialog textarea", json.dumps({**first, "fields": fields}))
    page.click("dialog >> text=Check compatibility")
    page.wait_for_selector("[data-verdict]:has-text('Compatible with')")
    page.click("dialog button.primary")
    page.wait_for_selector("[data-verdict]:has-text('Registered')")
    page.keyboard.press("Escape")
    page.select_option("[aria-label=Compare]", "1")
    assert '"price"' in page.inner_text("[data-diff] .added >> nth=2")


def test_dead_letter_is_replayed(pages: Pages, rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    origin = new_topic("shop", 1)
    new_topic(partitions=1, name=f"dlq.{origin}")
    publish(rest, f"dlq.{origin}", {"order": 7})
    page = pages.open(f"dead-letters/dlq.{origin}")
    page.click("[data-message]")
    page.click("text=Replay")
    page.wait_for_selector(f"[data-done]:has-text('{origin}')")
    assert len(rest.get(f"/api/v1/topics/{origin}/messages").json()["messages"]) == 1
