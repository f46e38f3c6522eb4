"""The console changes nothing that it shows, takes or copies, and makes nothing up."""

from __future__ import annotations

import base64
import io
import json
import struct
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import fastavro
import httpx
import pytest
from confluent_kafka import Consumer
from console_browser import Pages

from penstock.testing import Cluster

DIGITS = '{"b": 9223372036854775807, "a": [12.30, 1e400, -0.0],\n "a": "caf\\u00e9"}'
ODD_NAMES = ["..", "50%", "100%25", "a/b", "what?#[x] & y+z", "été"]
GAP_MS = 600_000


def named(name: str) -> str:
    """A name as a part of a path, as the console writes it."""
    return f"{name};" if name in (".", "..") else quote(name, safe="")


def stored(rest: httpx.Client, topic: str) -> list[bytes]:
    """The values of the first partition, byte for byte."""
    accept = {"accept": "application/vnd.kafka.binary.v2+json"}
    found = rest.get(f"/topics/{topic}/partitions/0/records", headers=accept).json()
    return [base64.b64decode(record["value"]) for record in found]


def publish(rest: httpx.Client, topic: str, value: bytes, headers: dict[str, bytes] | None = None) -> None:
    listed = [{"name": name, "value": base64.b64encode(data).decode()} for name, data in (headers or {}).items()]
    body = {
        "partition_id": 0,
        "value": {"type": "BINARY", "data": base64.b64encode(value).decode()},
        "headers": listed,
    }
    answer = rest.post(f"/v3/clusters/-/topics/{topic}/records", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("kind", ["JSON", "JSONSCHEMA", "AVRO"])
def test_json_is_written_as_it_was_typed(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str], kind: str
) -> None:
    topic = new_topic(partitions=1)
    schemas = {"JSONSCHEMA": ("JSON", "{}"), "AVRO": ("AVRO", '"long"')}
    typed, expected = DIGITS, DIGITS.encode()
    if kind in schemas:
        schema_type, schema = schemas[kind]
        body = {"schemaType": schema_type, "schema": schema}
        schema_id = rest.post(f"/registry/subjects/{topic}-value/versions", json=body).json()["id"]
        compact = '{"b":9223372036854775807,"a":[12.30,1e400,-0.0],"a":"café"}'.encode()
        expected = struct.pack(">bI", 0, schema_id) + compact
        if kind == "AVRO":
            written = io.BytesIO()
            typed = "9223372036854775807"
            fastavro.schemaless_writer(written, "long", int(typed))
            expected = struct.pack(">bI", 0, schema_id) + written.getvalue()
    page = pages.open(f"topics/{topic}")
    page.click("[data-new]")
    page.fill("dialog textarea >> nth=0", typed)
    page.select_option("dialog select >> nth=1", kind)
    page.click("dialog button.primary")
    page.wait_for_selector("[data-done]:has-text('offset 0')")
    assert stored(rest, topic) == [expected]
    page.fill("dialog textarea >> nth=0", "{not json")
    page.click("dialog button.primary")
    page.wait_for_selector("dialog [role=alert]:has-text('not JSON')")


@pytest.mark.parametrize("with_schema", [False, True])
def test_json_is_shown_and_copied_as_it_is_stored(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str], with_schema: bool
) -> None:
    topic = new_topic(partitions=1)
    prefix = b""
    if with_schema:
        body = {"schemaType": "JSON", "schema": "{}"}
        schema_id = rest.post(f"/registry/subjects/{topic}-value/versions", json=body).json()["id"]
        prefix = struct.pack(">bI", 0, schema_id)
    publish(rest, topic, prefix + DIGITS.encode())
    page = pages.open(f"topics/{topic}", permissions=["clipboard-read", "clipboard-write"])
    page.click("[data-message]")
    shown = page.inner_text(".detail pre")
    for digits in ("9223372036854775807", "12.30", "1e400", "-0.0", '"caf\\u00e9"'):
        assert digits in shown
    assert shown.count('"a":') == 2
    # It is laid out in lines all the same.
    assert '\n  "b": 9223372036854775807,\n' in shown
    page.click(".detail button:has-text('copy')")
    page.wait_for_function("async (wanted) => (await navigator.clipboard.readText()) === wanted", arg=DIGITS)


def test_avro_is_shown_in_readable_form(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    fields = {
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "id": {"type": "string", "logicalType": "uuid"},
    }
    schema = {"type": "record", "name": "Sale", "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}
    body = {"schema": json.dumps(schema)}
    schema_id = rest.post(f"/registry/subjects/{topic}-value/versions", json=body).json()["id"]
    written, name = io.BytesIO(), uuid.uuid4()
    value = {"price": Decimal("12.30"), "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "id": name}
    fastavro.schemaless_writer(written, schema, value)
    publish(rest, topic, struct.pack(">bI", 0, schema_id) + written.getvalue())
    [message] = rest.get(f"/api/v1/topics/{topic}/messages", params={"contains": "12.30"}).json()["messages"]
    assert message["value"]["text"] == f'{{"price": 12.30, "at": "2026-01-31T12:00:00Z", "id": "{name}"}}'


def test_the_next_version_of_a_schema_keeps_its_references(pages: Pages, rest: httpx.Client) -> None:
    tag = uuid.uuid4().hex[:8]
    item = {"type": "record", "name": f"Item{tag}", "fields": [{"name": "id", "type": "string"}]}
    rest.post(f"/registry/subjects/item-{tag}/versions", json={"schema": json.dumps(item)})
    field = {"name": "item", "type": f"Item{tag}"}
    number = {"name": "number", "type": "long", "default": 9223372036854775807}
    order: dict[str, Any] = {"type": "record", "name": f"Order{tag}", "fields": [field, number]}
    references = [{"name": f"Item{tag}", "subject": f"item-{tag}", "version": 1}]
    body = {"schema": json.dumps(order), "references": references}
    assert rest.post(f"/registry/subjects/order-{tag}/versions", json=body).status_code == 200
    page = pages.open(f"schemas/order-{tag}")
    page.wait_for_selector(f"text=uses item-{tag} 1")
    page.click("[data-new]")
    assert page.locator("[data-reference]").count() == 1
    text = page.input_value("dialog textarea")
    assert '"default": 9223372036854775807' in text
    page.fill("dialog textarea", text.replace(f'"Order{tag}"', f'"Order{tag}", "doc": "changed"'))
    page.click("dialog >> text=Check compatibility")
    page.wait_for_selector("[data-verdict]:has-text('Compatible with')")
    page.click("dialog button.primary")
    page.wait_for_selector("[data-verdict]:has-text('Registered')")
    latest = rest.get(f"/registry/subjects/order-{tag}/versions/latest").json()
    assert (latest["version"], latest["references"]) == (2, references)
    assert "9223372036854775807" in latest["schema"]


def test_the_controller_is_the_leader_of_the_quorum(pages: Pages, rest: httpx.Client) -> None:
    page = pages.open()
    page.wait_for_selector("[data-controller]")
    leader = rest.get("/api/v1/cluster/quorum").json()["leader"]
    page.wait_for_function(
        "(leader) => document.querySelector('[data-controller]').innerText.trim() === String(leader)", arg=leader
    )


def test_defaults_of_the_cluster_are_not_settings_of_the_topic(pages: Pages, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    sources = {
        "compression.type": "DEFAULT_CONFIG",
        "max.message.bytes": "STATIC_BROKER_CONFIG",
        "retention.ms": "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "segment.ms": "DYNAMIC_TOPIC_CONFIG",
    }
    settings = [
        {"name": name, "value": "1", "is_default": source == "DEFAULT_CONFIG", "is_read_only": False, "source": source}
        for name, source in sources.items()
    ]
    page = pages.open()
    page.route("**/configs", lambda route: route.fulfill(json={"data": settings}))
    page.goto(page.url.partition("#")[0] + f"#/topics/{topic}/settings")
    page.wait_for_selector("td:text-is('this topic')")
    rows = [row.inner_text().split("\t") for row in page.locator("tbody tr").all()]
    assert [(row[0], row[2].strip()) for row in rows] == [
        ("segment.ms", "this topic"),
        ("max.message.bytes", "a file of the broker"),
        ("retention.ms", "the cluster"),
        ("compression.type", "default"),
    ]
    # Only what is the topic's own can be given back.
    assert page.get_by_role("button", name="Default").count() == 1


def test_partitions_without_a_committed_offset_count(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        for _ in range(5):
            body = {"partition_id": partition, "value": {"type": "STRING", "data": "x"}}
            assert rest.post(f"/v3/clusters/-/topics/{topic}/records", json=body).status_code == 200
    group = f"partly-{topic}"
    commit = {"topic": topic, "partition": 0, "offset": 4}
    assert rest.post(f"/api/v1/consumer-groups/{group}/offsets", json=commit).status_code == 200
    shown = rest.get(f"/api/v1/consumer-groups/{group}").json()
    assert [(row["partition"], row["committed"], row["lag"]) for row in shown["partitions"]] == [
        (0, 4, 1),
        (1, None, 5),
        (2, None, 5),
    ]
    assert shown["lag"] == 11
    assert shown["history"][-1]["lags"] == {topic: 11}
    [listed] = rest.get("/api/v1/consumer-groups", params={"search": group}).json()["groups"]
    assert listed["lag"] == 11


def test_members_that_have_committed_nothing_are_behind(
    rest: httpx.Client, three_nodes: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=1)
    publish(rest, topic, b"unread")
    group = f"fresh-{topic}"
    consumer = Consumer(
        {"bootstrap.servers": three_nodes.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.2)
        shown = rest.get(f"/api/v1/consumer-groups/{group}").json()
        assert (shown["lag"], [row["committed"] for row in shown["partitions"]]) == (1, [None])
        [listed] = rest.get("/api/v1/consumer-groups", params={"search": group}).json()["groups"]
        assert listed["lag"] == 1
    finally:
        consumer.close()


INKED = """() => {
  const canvas = document.querySelector('canvas')
  const { width, height } = canvas
  const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data
  const inked = (from, to) => {
    let count = 0
    for (let x = Math.floor(width * from); x < width * to; x++)
      for (let y = 0; y < height; y++) {
        const [red, green, blue, alpha] = pixels.slice((y * width + x) * 4, (y * width + x) * 4 + 4)
        // The line and what is under it are coloured; axes and their grid are grey.
        if (alpha > 0 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) count++
      }
    return count
  }
  return [inked(0.1, 0.3), inked(0.4, 0.7), inked(0.85, 1)]
}"""


def test_charts_do_not_draw_missing_samples(pages: Pages) -> None:
    now = int(time.time() * 1000)
    moments = [*range(now - 2 * GAP_MS, now - GAP_MS - 200_000, 2000), *range(now - 200_000, now, 2000)]
    points = [{"at_ms": at, "records_per_s": 500.0} for at in moments]
    page = pages.open("topics")
    page.route("**/throughput", lambda route: route.fulfill(json={"points": points, "busiest": []}))
    page.goto(page.url.partition("#")[0] + "#/")
    page.wait_for_selector("canvas")
    page.wait_for_function(f"() => {{ const [early, , late] = ({INKED})(); return early > 0 && late > 0 }}")
    early, between, _ = page.evaluate(INKED)
    # Smoothed edges of the axes' grey letters may have a colour.
    assert between < early / 20


@pytest.mark.parametrize("name", ODD_NAMES)
def test_groups_of_any_name_can_be_opened(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str], name: str
) -> None:
    topic = new_topic(partitions=1)
    publish(rest, topic, b"x")
    commit = {"topic": topic, "partition": 0, "offset": 0}
    path = f"/api/v1/consumer-groups/{named(name)}"
    assert rest.post(f"{path}/offsets", json=commit).status_code == 200
    page = pages.open("groups")
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_function("(name) => document.querySelector('h1').innerText === name", arg=name)
    page.wait_for_selector(f"td:has-text('{topic}')")
    page.click("button:has-text('Delete …')")
    page.click("button:has-text('Delete it')")
    page.wait_for_selector("h1:text-is('Groups')")
    assert rest.get(path).status_code == 404


@pytest.mark.parametrize("name", ODD_NAMES)
def test_subjects_of_any_name_can_be_opened(pages: Pages, rest: httpx.Client, name: str) -> None:
    path = f"/registry/subjects/{named(name)}/versions"
    assert rest.post(path, json={"schema": '"int"'}).status_code == 200
    page = pages.open("schemas")
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_function("(name) => document.querySelector('h1').innerText === name", arg=name)
    page.wait_for_selector("pre:has-text('\"int\"')")


def test_an_address_with_a_lone_percent_sign_is_a_name(pages: Pages) -> None:
    page = pages.open("topics/50%")
    page.wait_for_selector("h1:text-is('50%')")


def test_dead_letters_of_spring_tell_where_they_came_from(
    pages: Pages, rest: httpx.Client, new_topic: Callable[..., str]
) -> None:
    origin = new_topic("shop", 4)
    letters = new_topic(partitions=1, name=f"{origin}-other.DLT")
    headers = {
        "kafka_dlt-original-topic": origin.encode(),
        "kafka_dlt-original-partition": (3).to_bytes(4, "big"),
        "kafka_dlt-original-offset": (4_294_967_297).to_bytes(8, "big"),
        "kafka_dlt-exception-fqcn": b"org.springframework.kafka.listener.ListenerExecutionFailedException",
        "kafka_dlt-exception-message": b"the order has no total",
        "trace": b"1",
    }
    publish(rest, letters, b"{}", headers)
    page = pages.open(f"dead-letters/{letters}")
    page.click("[data-message]")
    assert page.inner_text("[data-reason]") == "the order has no total"
    said = " ".join(page.inner_text("[data-origin]").split())
    assert said == f"from {origin} , partition 3, offset 4294967297".replace(" ,", ",")
    page.click("text=Replay")
    page.wait_for_selector(f"[data-done]:has-text('{origin}')")
    [again] = rest.get(f"/api/v1/topics/{origin}/messages").json()["messages"]
    assert [header["name"] for header in again["headers"]] == ["trace"]


@pytest.mark.parametrize("place", ["brokers", "clients", "schemas", "tenants"])
def test_a_list_that_cannot_be_had_is_neither_loading_nor_empty(pages: Pages, place: str) -> None:
    page = pages.open()
    for asked in ("**/api/**", "**/registry/**"):
        page.route(asked, lambda route: route.fulfill(status=503, json={"message": "no broker answers"}))
    page.goto(page.url.partition("#")[0] + f"#/{place}")
    page.reload()
    page.wait_for_selector("[data-trouble]:has-text('no broker answers')")
    page.wait_for_function("() => !document.body.innerText.includes('Loading …')")
    assert {*page.locator("td.empty").all_inner_texts()} == {"Nothing to show."}
