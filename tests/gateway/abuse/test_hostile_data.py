"""Attacks with schemas and data on one gateway, while another caller sends simple requests.

The gateway must keep its process, answer the neighbour soon, refuse or show what it is sent with a reason, and have
its memory back afterwards.
"""

from __future__ import annotations

import json
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.odd_records import ODD_RECORDS, produce_odd_headers

# A second is what a quiet machine must keep; one that runs other tests too gets some more.
NEIGHBOUR_MAX_S = 5.0
MEMORY_GROWTH_MAX = 50 * 1024 * 1024
MEMORY_PATIENCE_S = 60.0
V2 = "application/vnd.kafka.{}.v2+json"
LIMITS = [f"--limit={each}" for each in ("worker_idle_ms=1000", "worker_queue_max=4", "worker_wait_ms=2000")]
# More than are worked on or may wait.
ATTACKERS = 10
NULLS = {"type": "array", "items": "null"}
LIST = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "next", "type": ["null", "Link"]}],
}


@dataclass
class Neighbour:
    """Calls REST and registry again and again, and records the longest response time."""

    gateway: GatewayProcess
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._stop.wait(0.02):
                for address in (f"{self.gateway.rest}/status/alive", f"{self.gateway.registry}/subjects"):
                    began = time.monotonic()
                    try:
                        answer = client.get(address)
                    except httpx.HTTPError as error:
                        self.failures.append(f"{address}: {error!r}")
                        return
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    if answer.status_code != 200:
                        self.failures.append(f"{address}: {answer.status_code} {answer.text}")

    def __enter__(self) -> Neighbour:
        self._thread = threading.Thread(target=self.run, name="neighbour")
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def target(penstock_cluster: Cluster) -> Iterator[GatewayProcess]:
    """A gateway for the attacks of this module alone, whose idle workers soon end."""
    with GatewayProcess(penstock_cluster.bootstrap_servers, *LIMITS) as process:
        yield process


@pytest.fixture
def gateway(target: GatewayProcess) -> Iterator[GatewayProcess]:
    """The gateway, with another caller that must not be affected by the test, and memory that must be returned."""
    before, memory = target.pid, resident_bytes(target.pid)
    with Neighbour(target) as neighbour:
        yield target
    assert neighbour.failures == []
    print(f"the slowest answer took {neighbour.slowest_s:.3f} s")  # noqa: T201
    assert neighbour.slowest_s < NEIGHBOUR_MAX_S
    assert target.pid == before
    assert Path(f"/proc/{before}").exists()
    deadline = time.monotonic() + MEMORY_PATIENCE_S
    while (grown := resident_bytes(before) - memory) > MEMORY_GROWTH_MAX and time.monotonic() < deadline:
        time.sleep(0.2)
    assert grown <= MEMORY_GROWTH_MAX


def resident_bytes(pid: int) -> int:
    """The memory of a process and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0
    for each in (str(pid), *children):
        status = Path(f"/proc/{each}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return total


@pytest.fixture
def topic(rest: httpx.Client) -> str:
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    assert rest.post("/topics", json={"name": name}).status_code == 201
    return name


def register(registry: httpx.Client, schema: Any, kind: str = "AVRO", subject: str | None = None) -> httpx.Response:
    subject = subject or f"s-{uuid.uuid4().hex[:10]}"
    body = {"schema": json.dumps(schema), "schemaType": kind}
    return registry.post(f"/subjects/{subject}/versions", json=body)


def produce(
    cluster: Cluster,
    topic: str,
    *values: bytes,
    headers: list[tuple[str, bytes]] | None = None,
    compression: str = "lz4",
) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": compression}
    producer = Producer({**settings, "message.max.bytes": 200_000_000})
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, headers=headers or [], on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * len(values)


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + payload


def messages(rest: httpx.Client, topic: str, **query: Any) -> list[dict[str, Any]]:
    answer = rest.get(f"/api/v1/topics/{topic}/messages", params={"from": "earliest", **query})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


def read_v2(rest: httpx.Client, topic: str, form: str, offset: int = 0) -> httpx.Response:
    return rest.get(
        f"/topics/{topic}/partitions/0/records", params={"offset": offset}, headers={"Accept": V2.format(form)}
    )


def test_a_schema_without_finite_values_is_rejected(registry: httpx.Client) -> None:
    endless = {"type": "record", "name": "R", "fields": [{"name": "inner", "type": "R"}]}
    answer = register(registry, endless)
    assert answer.status_code == 422
    assert answer.json()["error_code"] == 42201
    assert "has no finite value" in answer.json()["message"]
    assert "union" in answer.json()["message"]
    assert register(registry, LIST).status_code == 200


def test_a_record_of_a_schema_without_finite_values_is_shown_as_bytes(
    penstock_cluster: Cluster, rest: httpx.Client, topic: str
) -> None:
    """Such a schema may be there already, or be written past this gateway."""
    schema_id = 1_900_000_001
    endless = json.dumps({"type": "record", "name": "R", "fields": [{"name": "inner", "type": "R"}]})
    key = {"keytype": "SCHEMA", "subject": topic, "version": 1, "magic": 1}
    value = {"subject": topic, "version": 1, "id": schema_id, "schema": endless, "deleted": False}
    producer = Producer({"bootstrap.servers": penstock_cluster.bootstrap_servers})
    producer.produce("_schemas", json.dumps(value).encode(), json.dumps(key).encode())
    assert producer.flush(30) == 0
    produce(penstock_cluster, topic, framed(schema_id, b""), b'{"good": 1}')
    until(lambda: rest.get(f"/registry/schemas/ids/{schema_id}").status_code == 200)
    endless_one, good = messages(rest, topic)
    assert endless_one["value"]["format"] == "hex"
    assert "nested deeper than 200 (the limit value_depth_max)" in endless_one["value"]["note"]
    assert good["value"]["format"] == "json"
    assert read_v2(rest, topic, "avro").status_code == 422


def until(condition: Any, patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def test_values_that_are_too_deep_or_too_many_are_shown_as_they_are(
    penstock_cluster: Cluster, rest: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    links, nulls = register(registry, LIST).json()["id"], register(registry, NULLS).json()["id"]
    twenty_million = b"\x80\xda\xc4\x13\x00"
    deep, many = framed(links, b"\x02" * 5000 + b"\x00"), framed(nulls, twenty_million)
    produce(penstock_cluster, topic, deep, many, framed(links, b"\x02\x00"))
    shown = [each["value"] for each in messages(rest, topic)]
    assert [each["format"] for each in shown] == ["hex", "hex", "schema"]
    assert "value_depth_max" in shown[0]["note"]
    assert "value_count_max" in shown[1]["note"]
    assert json.loads(shown[2]["text"]) == {"next": {"Link": {"next": None}}}
    for offset, limit in ((0, "value_depth_max"), (1, "value_count_max")):
        answer = read_v2(rest, topic, "avro", offset)
        assert answer.status_code == 422
        assert limit in answer.json()["message"]
        assert f"offset {offset}" in answer.json()["message"]
    # A text search decodes every record, too.
    assert len(messages(rest, topic, contains="Link")) == 1


@pytest.mark.parametrize("size", [400, 2000])
def test_avro_unions_are_compared_in_workers(registry: httpx.Client, size: int) -> None:
    def union(tag: str) -> list[Any]:
        return [
            {"type": "record", "name": f"R{number}{tag}", "fields": [{"name": "a", "type": "int"}]}
            for number in range(size)
        ]

    subject = f"s-{uuid.uuid4().hex[:10]}"
    assert register(registry, union("x"), subject=subject).status_code == 200
    answer = register(registry, union("y"), subject=subject)
    assert answer.status_code in (409, 422)
    if answer.status_code == 422:
        assert "the limit worker_" in answer.json()["message"]


def nested_all_of(depth: int, leaf: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": leaf}
    for _ in range(depth):
        schema = {"allOf": [schema, schema]}
    return schema


def test_nested_all_of_is_checked_in_workers(rest: httpx.Client, topic: str) -> None:
    """Each name stands for the one below it twice, so a short schema stands for a million checks and more."""
    names = {f"a{depth}": {"allOf": [{"$ref": f"#/definitions/a{depth - 1}"}] * 2} for depth in range(1, 23)}
    schema = {"definitions": {"a0": {"type": "string"}, **names}, "$ref": "#/definitions/a22"}
    body = {"value_schema": json.dumps(schema), "records": [{"value": "x"}]}
    answer = rest.post(f"/topics/{topic}", json=body, headers={"Content-Type": V2.format("jsonschema")})
    assert answer.status_code == 422
    assert "the limit worker_deadline_ms" in answer.json()["message"]


def test_unique_items_are_checked_in_workers(rest: httpx.Client, topic: str) -> None:
    body = {
        "value_schema": json.dumps({"type": "array", "uniqueItems": True}),
        "records": [{"value": [{"a": {"b": number}} for number in range(3000)]}],
    }
    answer = rest.post(f"/topics/{topic}", json=body, headers={"Content-Type": V2.format("jsonschema")})
    assert answer.status_code == 422
    assert "the limit worker_deadline_ms" in answer.json()["message"]


def test_more_records_than_a_request_may_have_are_counted_first(rest: httpx.Client, topic: str) -> None:
    body = b'{"records":[' + b",".join([b'{"value":"aGk="}'] * 300_000) + b"]}"
    answer = rest.post(f"/topics/{topic}", content=body, headers={"Content-Type": V2.format("binary")})
    assert answer.status_code in (413, 422)
    assert "the limit body_values_max" in answer.json()["message"] or "300,000" in answer.json()["message"]
    body = b'{"records":[' + b",".join([b"{}"] * 60_000) + b"]}"
    answer = rest.post(f"/topics/{topic}", content=body, headers={"Content-Type": V2.format("binary")})
    assert answer.status_code == 422
    assert "60,000 entries, more than 50,000 (the limit produce_records_max)" in answer.json()["message"]


def test_bodies_of_many_small_values_are_refused(rest: httpx.Client, topic: str) -> None:
    values = b"[" + b",".join([b"[]"] * 5_000_000) + b"]"
    for path in (f"/topics/{topic}/publish", f"/v3/clusters/x/topics/{topic}/records"):
        answer = rest.post(path, content=b'{"value":%b}' % values, headers={"Content-Type": "application/json"})
        assert answer.status_code in (404, 413), answer.text


def test_record_with_an_enormous_header_is_reported_without_contents(
    penstock_cluster: Cluster, rest: httpx.Client, topic: str
) -> None:
    produce(penstock_cluster, topic, b"small", headers=[("large", b"[" + b"1," * 45_000_000 + b"1]")])
    [shown] = messages(rest, topic)
    assert "the limit record_bytes_max" in shown["value"]["note"]
    [plain] = rest.get(f"/api/v1/topics/{topic}/partitions/0/messages").json()["messages"]
    assert "more than 16,777,216 (the limit record_bytes_max)" in plain["unreadable"]
    refused = read_v2(rest, topic, "binary")
    assert refused.status_code == 422
    assert "record_bytes_max" in refused.json()["message"]


def test_records_that_clients_cannot_read_do_not_hide_others(
    penstock_cluster: Cluster, rest: httpx.Client, topic: str
) -> None:
    """A batch that unfolds to more than librdkafka takes, and a header whose name is no text."""
    produce(penstock_cluster, topic, b"first")
    bomb = b"x" * 95_000_000
    produce(penstock_cluster, topic, b"small", headers=[("large", bomb)], compression="zstd")
    produce_odd_headers(penstock_cluster.bootstrap_servers, topic)
    produce_odd_headers(penstock_cluster.bootstrap_servers, "_schemas", 1)
    produce(penstock_cluster, topic, b"last")
    first, large, *odd, last = messages(rest, topic)
    assert (first["value"]["text"], last["value"]["text"]) == ("first", "last")
    assert "cannot be decoded" in large["value"]["note"]
    assert [each["value"]["text"] for each in odd] == ["{}"] * ODD_RECORDS
    assert all("not valid UTF-8" in each["headers"][0]["note"] for each in odd)
    plain = rest.get(f"/api/v1/topics/{topic}/partitions/0/messages").json()["messages"]
    assert len(plain) == ODD_RECORDS + 3
    seen = [rest.get(f"/topics/{topic}/subscribe", params={"group": topic}).json() for _ in range(3)]
    assert [each["value"] for each in seen] == ["first", None, "{}"]
    assert "cannot be decoded" in seen[1]["unreadable"]


def test_poison_texts_do_not_break_pages(penstock_cluster: Cluster, rest: httpx.Client, topic: str) -> None:
    poison = [
        b"[" * 50_000,
        b"[" * 900 + b"]" * 900,
        b"NaN",
        b'{"n": 1e999, "i": ' + b"9" * 10_000 + b"}",
        b'"\\ud800"',
        "\U0001f600".encode()[:3],
        b"",
    ]
    produce(penstock_cluster, topic, *poison)
    shown = messages(rest, topic)
    assert len(shown) == len(poison)
    assert shown[3]["value"]["format"] == "json"
    for offset in range(len(poison)):
        answer = read_v2(rest, topic, "json", offset)
        assert answer.status_code in (200, 422), answer.text
    # JSON is returned as it was written.
    assert read_v2(rest, topic, "json", 3).status_code == 422
    alone = f"{topic}-alone"
    assert rest.post("/topics", json={"name": alone}).status_code == 201
    produce(penstock_cluster, alone, poison[3])
    assert poison[3] in read_v2(rest, alone, "json").content


@pytest.mark.parametrize("value", ['"\\ud800"', "[" * 400 + "]" * 400, "1" * 4000, "[" * 980 + "]" * 980])
def test_poison_values_are_published_or_refused(rest: httpx.Client, topic: str, value: str) -> None:
    calls = {
        f"/topics/{topic}/publish": ('{"value":%s}', "application/json"),
        f"/topics/{topic}": ('{"records":[{"value":%s}]}', V2.format("json")),
    }
    for path, (body, media_type) in calls.items():
        answer = rest.post(path, content=body % value, headers={"Content-Type": media_type})
        assert answer.status_code in (200, 400, 422), answer.text


def test_poison_in_the_gateways_own_topics(
    penstock_cluster: Cluster, rest: httpx.Client, registry: httpx.Client
) -> None:
    producer = Producer({"bootstrap.servers": penstock_cluster.bootstrap_servers})
    report = '{"state": "running", "updated": 1, "queries": [], "rows": %s}'
    for key, text in {
        "deep": "[" * 50_000,
        "nan": report % "NaN",
        "large": report % "1e999",
        "long": report % ("9" * 10_000),
        "nested": report % ("[" * 900 + "]" * 900),
        "half": report % '"\\ud800"',
        "endless": '{"state": "running", "updated": Infinity, "queries": []}',
    }.items():
        producer.produce("_pipelines", text.encode(), key.encode())
    name = f"poison-{uuid.uuid4().hex[:8]}"
    schema = {"keytype": "SCHEMA", "subject": name, "version": 1, "magic": 1}
    for key, text in [
        (b"[" * 50_000, b"[" * 50_000),
        (json.dumps({**schema, "version": float("inf")}).encode(), b"{}"),
        (json.dumps(schema).encode(), b'{"id": 1e999, "schema": "\\"string\\""}'),
        (json.dumps({**schema, "version": 2}).encode(), b'{"id": 1, "schema": "\\ud800"}'),
        (json.dumps({**schema, "version": 3}).encode(), b'{"id": 1, "schema": "x", "metadata": [[1, 2]]}'),
        (json.dumps({"keytype": "CONFIG", "subject": name, "magic": 0}).encode(), b'{"compatibilityLevel": []}'),
        (json.dumps({"keytype": "MODE", "subject": name, "magic": 0}).encode(), b'{"mode": {}}'),
    ]:
        producer.produce("_schemas", text, key, headers=[("penstock.base", b"9" * 5000)])
    assert producer.flush(30) == 0
    until(lambda: any(each["name"] == "nan" for each in pipelines(rest)))
    rows = {each["name"]: each["rows"] for each in pipelines(rest)}
    assert rows["nan"] is rows["large"] is None
    assert "deep" not in rows
    assert register(registry, "string", subject=name).status_code == 200
    assert registry.get("/schemas").status_code == 200


def pipelines(rest: httpx.Client) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    found: list[dict[str, Any]] = json.loads(rest.get("/api/v1/pipelines").text, parse_constant=refuse)["pipelines"]
    return found


def test_busy_registry_workers_delay_only_the_registry(
    penstock_cluster: Cluster, rest: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    links = register(registry, LIST).json()["id"]
    produce(penstock_cluster, topic, framed(links, b"\x02\x00"))
    address = str(registry.base_url).rstrip("/")
    slow = {"schema": json.dumps(nested_all_of(16, "string")), "schemaType": "JSON"}

    def attack(number: int) -> httpx.Response:
        return httpx.post(f"{address}/subjects/{topic}-{number}/versions", json=slow, timeout=60)

    with ThreadPoolExecutor(ATTACKERS) as attackers:
        attacks = [attackers.submit(attack, number) for number in range(ATTACKERS)]
        until(lambda: any(attack.done() for attack in attacks))
        [shown] = messages(rest, topic)
        assert shown["value"]["format"] == "schema"
        assert read_v2(rest, topic, "avro").status_code == 200
        answers = [attack.result() for attack in attacks]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert all(answer.headers["retry-after"] and "try again" in answer.json()["message"] for answer in refused)
    assert all(answer.status_code in (200, 422, 503) for answer in answers)


def test_new_schema_of_many_records_is_looked_up_once(rest: httpx.Client, topic: str) -> None:
    """There are more of them than may wait for a worker."""
    schema = json.dumps({"type": "record", "name": f"R{uuid.uuid4().hex}", "fields": [{"name": "a", "type": "int"}]})
    entries = [
        {"id": str(number), "value": {"type": "AVRO", "schema": schema, "data": {"a": number}}} for number in range(250)
    ]
    cluster_id = rest.get("/v3/clusters").json()["data"][0]["cluster_id"]
    answer = rest.post(f"/v3/clusters/{cluster_id}/topics/{topic}/records:batch", json={"entries": entries})
    assert answer.status_code == 207
    assert answer.json()["failures"] == []
    assert len(answer.json()["successes"]) == len(entries)


def test_too_large_schemas_are_rejected(registry: httpx.Client) -> None:
    answer = register(registry, {"type": "record", "name": "R", "doc": "x" * 1_000_000, "fields": []})
    assert answer.json()["error_code"] == 42209
    assert "1,000,056 bytes, more than 1,000,000 (the limit schema_bytes_max)" in answer.json()["message"]
    # As a text within a record each of these takes two bytes.
    answer = register(registry, {"type": "record", "name": "R", "doc": '"' * 300_000, "fields": []})
    assert answer.json()["error_code"] == 42209
    assert "The schema's record" in answer.json()["message"]
    fits = register(registry, {"type": "record", "name": "R", "doc": "x" * 990_000, "fields": []})
    assert fits.status_code == 200, fits.text


def test_pages_may_not_be_framed_or_sniffed(rest: httpx.Client) -> None:
    for path in ("/docs", "/console/"):
        headers = rest.get(path).headers
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
