"""Share groups and their dead letters in the console."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
from console_browser import Pages

from penstock.testing import Cluster
from support.share_member import set_group
from support.wire_client import WireClient

DEADLINE_S = 60.0


def give_up(rest: httpx.Client, topic: str, group: str) -> None:
    """Reject the group's next message."""
    taken = rest.get(f"/topics/{topic}/subscribe", params={"group": group, "timeout": 20_000})
    assert taken.status_code == 200, taken.text
    said = {"messageId": taken.json()["messageId"], "deadLetter": True}
    rest.post(f"/topics/{topic}/nack", json=said).raise_for_status()


def messages(rest: httpx.Client, topic: str, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found: list[dict[str, Any]] = rest.get(f"/api/v1/topics/{topic}/messages").json()["messages"]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def test_a_share_group_and_its_dead_letters(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str], three_nodes: Cluster
) -> None:
    topic = new_topic("jobs", 1)
    group, letters = f"workers-{uuid.uuid4().hex[:8]}", f"dlq.{topic}"
    configs = {"errors.deadletterqueue.group.enable": "true"}
    rest.post("/topics", json={"name": letters, "partitions": 1, "configs": configs}).raise_for_status()
    with WireClient(three_nodes.bootstrap_servers.split(",")[0]) as client:
        set_group(
            client,
            group,
            {
                "errors.deadletterqueue.topic.name": letters,
                "errors.deadletterqueue.copy.record.enable": "true",
            },
        )
    for number in (1, 2, 3):
        body = {"key": f"job-{number}", "value": f"work {number}", "headers": {"trace": f"t{number}"}}
        rest.post(f"/topics/{topic}/publish", json=body).raise_for_status()
    give_up(rest, topic, group)
    give_up(rest, topic, group)
    assert len(messages(rest, letters, 2)) == 2

    page = pages.open(f"groups?search={group}")
    page.wait_for_selector(f"tr:has-text('{group}') >> text=share")
    page.click(f"a:text-is('{group}')")
    page.wait_for_selector("th:text-is('Start')")
    assert page.locator("text=Reset offsets").count() == 0
    page.wait_for_selector("td:text-is('penstock-gateway')")

    page = pages.open(f"dead-letters/{letters}")
    page.wait_for_selector("[data-message] >> nth=1")
    page.fill("[data-filter]", "JOB-2")
    page.wait_for_function("document.querySelectorAll('[data-message]').length === 1")
    page.click("[data-message]")
    assert page.inner_text("[data-reason]") == "Offset rejected by client."
    assert page.inner_text("[data-group]").split() == ["given", "up", "by", group, "after", "one", "delivery"]
    page.click("text=Replay")
    page.wait_for_selector(f"[data-done]:has-text('{topic}')")
    page.click("text=Edit a copy")
    page.fill("textarea >> nth=0", "work 2, repaired")
    page.click("form button.primary")
    page.wait_for_selector("form [data-done]")
    again, edited = sorted(messages(rest, topic, 5), key=lambda each: each["offset"])[3:]
    assert [(each["key"]["text"], each["value"]["text"]) for each in (again, edited)] == [
        ("job-2", "work 2"),
        ("job-2", "work 2, repaired"),
    ]
    for each in (again, edited):
        assert [(header["name"], header["text"]) for header in each["headers"]] == [("trace", "t2")]
