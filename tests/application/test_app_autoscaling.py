"""The autoscaler examples in docs/app.md, each run against the real endpoint."""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

import penstock
from penstock.app.counters import SubscriptionCounters
from penstock.app.running.pages import make_pages
from penstock.app.running.scaling import Bounds
from penstock.app.running.supervisor import Supervisor
from penstock.testing import AppHarness

PAGE = (Path(__file__).parents[2] / "docs" / "app.md").read_text()
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The one form that the page uses: each subscription's lag as any pod reports it, summed over subscriptions.
QUERY = re.compile(r'sum\(max by \((?P<by>\w+)\) \((?P<metric>\w+)\{(?P<label>\w+)="(?P<value>[^"]*)"\}\)\)')
SAMPLE = re.compile(r"^(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
RECORDS = 25


def trigger(kind: str) -> dict[str, Any]:
    documents = [yaml.safe_load(text) for text in BLOCK.findall(PAGE)]
    specs = [document.get("spec", document) for document in documents]
    (found,) = [each for spec in specs for each in spec.get("triggers", ()) if each["type"] == kind]
    metadata: dict[str, Any] = found["metadata"]
    return metadata


def ask_prometheus(query: str, scrapes: list[str]) -> float:
    """The query's answer if Prometheus had scraped these pods."""
    parts = QUERY.fullmatch(query)
    assert parts is not None, f"this test cannot read {query}"
    highest: dict[str, float] = {}
    for scrape in scrapes:
        for metric, text, value in SAMPLE.findall(scrape):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
            if metric == parts["metric"] and labels.get(parts["label"]) == parts["value"]:
                group = labels[parts["by"]]
                highest[group] = max(highest.get(group, 0.0), float(value))
    assert highest, f"nothing answers {query}"
    return sum(highest.values())


def test_documented_autoscaler_examples_read_the_group_lag(servers: str) -> None:
    name = uuid.uuid4().hex[:8]
    app = penstock.App("billing", servers)
    for label, topic in (("bill", f"orders-{name}"), ("refund", f"returns-{name}")):

        @app.subscribe(topic, name=label, group=f"{label}-{name}")
        def handle(value: dict) -> None:  # type: ignore[type-arg]
            del value

    with penstock.Admin(servers) as admin, penstock.Producer(servers) as producer:
        for subscription in app.subscriptions:
            admin.create_topic(subscription.topics[0], 2, 1)
            for number in range(RECORDS):
                producer.send(subscription.topics[0], str(number), {"n": number})
    reader, prometheus = trigger("metrics-api"), trigger("prometheus")

    async def read_lag() -> tuple[int, httpx.Response, str]:
        supervisor = Supervisor(app, "shop:app", Bounds(1, 8, lag_records=20))
        pages = make_pages(app, supervisor, "127.0.0.1", 0)
        await pages.start()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{pages.port}") as client:
            path = urlsplit(reader["url"]).path
            before = await client.get(path)
            await supervisor.scale()
            found = before.status_code, await client.get(path), (await client.get("/metrics")).text
        await pages.stop()
        return found

    status_before, answer, scrape = asyncio.run(read_lag())
    assert status_before == 503, "KEDA must not take a lag that is not known for none"
    assert answer.status_code == 200
    value = answer.json()
    for step in reader["valueLocation"].split("."):
        value = value[step]
    assert value == 2 * RECORDS
    assert answer.json()["wanted"] == 3
    assert ask_prometheus(prometheus["query"], [scrape, scrape]) == 2 * RECORDS
    assert float(reader["targetValue"]) == float(prometheus["threshold"]) == Bounds().lag_records
    assert f":{urlsplit(reader['url']).port}`" in PAGE, "the port is the one that the Deployment's command opens"
    assert 'penstock_app_workers_wanted{app="billing"} 3' in scrape


def test_delayed_record_is_the_only_lag(servers: str) -> None:
    """Records finished behind it cannot be committed yet, but do not scale the workers out."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    app = penstock.App(topic, servers)

    @app.subscribe(topic, retries=1, delay_s=1000)
    def handle(value: str) -> None:
        if value == "poison":
            raise ValueError("not now")

    async def lag() -> int:
        supervisor = Supervisor(app, "shop:app", Bounds())
        await supervisor.scale()
        assert supervisor.knows_lag
        found: int = supervisor.lag()["records"]
        return found

    with AppHarness(app, servers, partitions=1) as harness:
        harness.send(topic, "a", "poison")
        for number in range(RECORDS):
            harness.send(topic, "b", str(number))
        harness.run()
        assert asyncio.run(lag()) == 1
        harness.advance(1000)
        assert asyncio.run(lag()) == 0


def test_share_group_subscription_reports_record_age() -> None:
    """`--lag-seconds` needs it."""
    app = penstock.App("packing")

    @app.subscribe("orders", share=True)
    def pack(value: str) -> None:
        del value

    assert app.counters["pack"].age.count == 0
    with AppHarness(app) as harness:
        harness.send("orders", None, "tea")
        harness.run()
    counters: SubscriptionCounters = app.counters["pack"]
    assert counters.age.count == 1
