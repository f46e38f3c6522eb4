"""The console's pages of clients that push metrics, and of the hot keys of a topic."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

import httpx
import pytest
from confluent_kafka import Producer
from console_browser import Pages

from penstock.model.ids import format_uuid
from penstock.testing import Cluster
from penstock.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.wire.messages.push_telemetry import PushTelemetryRequest
from support.otlp import gauge, metrics_data, point, total
from support.wire_client import WireClient


def look(page: object, name: str) -> None:
    """Leave a picture below PENSTOCK_PICTURES."""
    folder = os.environ.get("PENSTOCK_PICTURES")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png")  # type: ignore[attr-defined]


@pytest.fixture
def pushing(three_nodes: Cluster) -> tuple[str, str]:
    """A client that has pushed two metrics: its id, and that of the instance."""
    client_id = f"till-{uuid.uuid4().hex[:8]}"
    with WireClient(three_nodes.address(2), client_id=client_id) as wire:
        plan = wire.call(GetTelemetrySubscriptionsRequest(), 0)
        data = metrics_data(
            gauge("org.apache.kafka.producer.queue.time.avg", point(1.25, {"topic": "orders"})),
            total("org.apache.kafka.producer.record.send.total", point(5_120)),
        )
        push = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, 0, data)
        assert wire.call(push, 0).error_code == 0
    return client_id, format_uuid(plan.client_instance_id)


def test_a_client_is_listed_and_shown_with_its_metrics(pages: Pages, pushing: tuple[str, str]) -> None:
    client_id, _ = pushing
    page = pages.open(f"clients?search={client_id}")
    row = page.locator(f"tr:has-text('{client_id}')")
    row.wait_for()
    cells = row.locator("td").all_inner_texts()
    assert cells[2] == "127.0.0.1"
    assert cells[5].strip() == "2"
    assert cells[6] == "2", "the broker that it pushed to"
    look(page, "clients")
    row.locator("a").click()
    page.locator("tr:has-text('org_apache_kafka_producer_record_send_total'):has-text('5,120')").wait_for()
    text = page.locator("tr:has-text('queue_time_avg')").inner_text()
    assert "1.25" in text
    assert "topic=orders" in text
    look(page, "client")
    page.fill("[data-search]", "queue")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")


def test_clients_are_data_too(rest: httpx.Client, pushing: tuple[str, str]) -> None:
    client_id, instance_id = pushing
    (listed,) = rest.get("/api/v1/clients", params={"search": client_id}).json()["clients"]
    assert (listed["instance_id"], listed["series_count"], listed["broker"]) == (instance_id, 2, 2)
    one = rest.get(f"/api/v1/clients/{instance_id}").json()
    assert {row["name"] for row in one["series"]} >= {"org_apache_kafka_producer_record_send_total"}
    assert rest.get("/api/v1/clients/AAAAAAAAAAAAAAAAAAAAAA").status_code == 404
    assert rest.get("/api/v1/clients/short").status_code == 400


def test_hot_keys_of_a_topic_are_shown_with_their_shares(
    pages: Pages, rest: httpx.Client, three_nodes: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": three_nodes.bootstrap_servers, "enable.metrics.push": False})
    for key, records in (("rare", 1), ("often", 30), ("sometimes", 8), (None, 1)):
        for _ in range(records):
            producer.produce(topic, b"v" * (5_000 if key == "rare" else 10), key=key)
    assert producer.flush(30) == 0
    found = rest.get(f"/api/v1/topics/{topic}/hot-keys").json()
    assert (found["records"], found["keyless_records"], found["records_error"]) == (40, 1, 0)
    assert [row["key"] for row in found["keys"]][:2] == ["often", "sometimes"]
    page = pages.open(f"topics/{topic}/keys")
    page.locator("tr:has-text('often'):has-text('75.0 %')").wait_for()
    assert "Counted exactly" in page.inner_text("main")
    look(page, "hot_keys")
    first = "() => document.querySelector('tbody td').innerText"
    assert page.evaluate(first) == "often"
    page.click("button:has-text('Bytes')")
    page.wait_for_function("() => document.querySelector('tbody td').innerText === 'rare'")
    assert rest.get("/api/v1/topics/no-such-topic/hot-keys").status_code in (400, 404)
