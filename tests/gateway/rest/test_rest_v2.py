"""Confluent's REST Proxy v2: producing in its formats, consumer instances, topics and partitions."""

from __future__ import annotations

import base64
import time
import uuid
from typing import Any

import httpx
import pytest

from penstock.testing import Cluster

PLAIN = {"content-type": "application/vnd.kafka.v2+json"}


def kind(form: str) -> dict[str, str]:
    return {"content-type": f"application/vnd.kafka.{form}.v2+json"}


def accept(form: str) -> dict[str, str]:
    return {"accept": f"application/vnd.kafka.{form}.v2+json"}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def problem(response: httpx.Response, status: int, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    assert body["message"]
    return str(body["message"])


class Instance:
    """A consumer instance and its calls."""

    def __init__(self, rest: httpx.Client, form: str, **options: Any) -> None:
        self.rest = rest
        self.form = form
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        body = {"name": "one", "format": form, "auto.offset.reset": "earliest", **options}
        made = rest.post(f"/consumers/{self.group}", json=body, headers=PLAIN)
        assert made.status_code == 200, made.text
        assert made.json()["instance_id"] == "one"
        self.path = f"/consumers/{self.group}/instances/one"
        assert made.json()["base_uri"].endswith(self.path)

    def post(self, tail: str, body: Any) -> httpx.Response:
        return self.rest.post(f"{self.path}/{tail}", json=body, headers=PLAIN)

    def records(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _ in range(30):
            answer = self.rest.get(f"{self.path}/records", params={"timeout": 1000}, headers=accept(self.form))
            assert answer.status_code == 200, answer.text
            found += answer.json()
            if len(found) >= count:
                break
        return found

    def close(self) -> None:
        assert self.rest.delete(self.path).status_code == 204


@pytest.fixture
def topic(penstock_cluster: Cluster) -> str:
    return penstock_cluster.create_topic(partitions=2)


def test_binary_records_round_trip(rest: httpx.Client, topic: str) -> None:
    records = [{"key": encoded("k"), "value": encoded(f"v{n}"), "partition": 1} for n in range(3)]
    answer = rest.post(f"/topics/{topic}", json={"records": records}, headers=kind("binary")).json()
    assert answer["offsets"] == [{"partition": 1, "offset": n, "error_code": None, "error": None} for n in range(3)]
    assert (answer["key_schema_id"], answer["value_schema_id"]) == (None, None)
    instance = Instance(rest, "binary")
    assert instance.post("subscription", {"topics": [topic]}).status_code == 204
    assert rest.get(f"{instance.path}/subscription").json() == {"topics": [topic]}
    found = instance.records(3)
    assert found[0] == {"topic": topic, "key": encoded("k"), "value": encoded("v0"), "partition": 1, "offset": 0}
    assert [each["value"] for each in found] == [encoded(f"v{n}") for n in range(3)]
    instance.close()
    problem(rest.get(f"{instance.path}/records"), 404, 40403)


def test_json_records_round_trip(rest: httpx.Client, topic: str) -> None:
    body = {"records": [{"value": {"a": [1, None]}}, {"key": "text", "value": None}]}
    assert rest.post(f"/topics/{topic}/partitions/0", json=body, headers=kind("json")).status_code == 200
    instance = Instance(rest, "json")
    instance.post("subscription", {"topic_pattern": topic})
    assert [(each["key"], each["value"]) for each in instance.records(2)] == [(None, {"a": [1, None]}), ("text", None)]
    instance.close()


AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},{"name":"s","type":"string"}]}'
JSON_SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
PROTO = 'syntax = "proto3"; message M { string name = 1; int32 size = 2; }'


@pytest.mark.parametrize(
    ("form", "schema", "value", "wrong"),
    [
        ("avro", AVRO, {"a": {"int": 5}, "s": "x"}, {"a": "text"}),
        ("jsonschema", JSON_SCHEMA, {"a": 5}, {"a": "text"}),
        ("protobuf", PROTO, {"name": "x", "size": 5}, {"nothing": 1}),
    ],
)
def test_records_with_schemas(
    rest: httpx.Client, registry: httpx.Client, topic: str, form: str, schema: str, value: Any, wrong: Any
) -> None:
    body = {"value_schema": schema, "records": [{"value": value}]}
    answer = rest.post(f"/topics/{topic}", json=body, headers=kind(form))
    assert answer.status_code == 200, answer.text
    schema_id = answer.json()["value_schema_id"]
    assert registry.get(f"/subjects/{topic}-value/versions/latest").json()["id"] == schema_id
    by_id = {"value_schema_id": schema_id, "records": [{"value": value}]}
    assert rest.post(f"/topics/{topic}", json=by_id, headers=kind(form)).status_code == 200
    problem(
        rest.post(f"/topics/{topic}", json={**by_id, "records": [{"value": wrong}]}, headers=kind(form)), 422, 42203
    )
    instance = Instance(rest, form)
    instance.post("subscription", {"topics": [topic]})
    assert [each["value"] for each in instance.records(2)] == [value, value]
    instance.close()


def test_an_idle_instance_continues(rest: httpx.Client, topic: str) -> None:
    instance = Instance(rest, "json")
    instance.post("subscription", {"topics": [topic]})
    for number in range(2):
        rest.post(f"/topics/{topic}", json={"records": [{"value": number}]}, headers=kind("json"))
        assert [each["value"] for each in instance.records(1)] == [number]
        # Meanwhile the gateway keeps the group's protocol alive, and must not fetch without a caller.
        time.sleep(2.5)
    instance.close()


def test_record_that_cannot_be_converted_is_not_lost(rest: httpx.Client, topic: str) -> None:
    for content in (b"1", b"no json", b"3"):
        rest.post(f"/topics/{topic}/partitions/0", json={"records": [{"value": base64.b64encode(content).decode()}]})
    instance = Instance(rest, "json")
    place = {"topic": topic, "partition": 0}
    instance.post("assignments", {"partitions": [place]})
    for _ in range(2):
        answer = rest.get(f"{instance.path}/records", params={"timeout": 10_000}, headers=accept("json"))
        problem(answer, 422, 42206)
    assert instance.post("positions", {"offsets": [{**place, "offset": 2}]}).status_code == 204
    assert [each["value"] for each in instance.records(1)] == [3]
    instance.close()


def test_partitions_can_be_assigned_manually(rest: httpx.Client, topic: str) -> None:
    rest.post(f"/topics/{topic}/partitions/0", json={"records": [{"value": n} for n in range(5)]}, headers=kind("json"))
    instance = Instance(rest, "json", **{"auto.commit.enable": "false"})
    place = {"topic": topic, "partition": 0}
    assert instance.post("assignments", {"partitions": [place]}).status_code == 204
    assert rest.get(f"{instance.path}/assignments").json() == {"partitions": [place]}
    problem(instance.post("subscription", {"topics": [topic]}), 409, 40903)
    assert [each["value"] for each in instance.records(5)] == [0, 1, 2, 3, 4]
    assert instance.post("positions", {"offsets": [{**place, "offset": 3}]}).status_code == 204
    assert [each["value"] for each in instance.records(2)] == [3, 4]
    assert instance.post("positions/beginning", {"partitions": [place]}).status_code == 204
    assert [each["value"] for each in instance.records(5)] == [0, 1, 2, 3, 4]
    assert instance.post("positions/end", {"partitions": [place]}).status_code == 204
    problem(instance.post("positions", {"offsets": [{"topic": topic, "partition": 1, "offset": 0}]}), 409, 40903)
    assert instance.post("offsets", {"offsets": [{**place, "offset": 2, "metadata": "mine"}]}).status_code == 200
    committed = rest.request("GET", f"{instance.path}/offsets", json={"partitions": [place]}, headers=PLAIN).json()
    assert committed == {"offsets": [{**place, "offset": 3, "metadata": "mine"}]}
    instance.close()


def test_topics_and_partitions(rest: httpx.Client, topic: str) -> None:
    assert rest.get("/brokers").json() == {"brokers": [1]}
    assert topic in rest.get("/topics").json()
    shown = rest.get(f"/topics/{topic}").json()
    assert shown["name"] == topic
    assert shown["configs"]["cleanup.policy"] == "delete"
    replica = {"broker": 1, "leader": True, "in_sync": True}
    assert shown["partitions"] == [{"partition": n, "leader": 1, "replicas": [replica]} for n in range(2)]
    assert rest.get(f"/topics/{topic}/partitions").json() == shown["partitions"]
    assert rest.get(f"/topics/{topic}/partitions/1").json() == shown["partitions"][1]
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json() == {"beginning_offset": 0, "end_offset": 0}


def test_records_by_offset(rest: httpx.Client, topic: str) -> None:
    rest.post(f"/topics/{topic}/partitions/1", json={"records": [{"value": n} for n in range(4)]}, headers=kind("json"))
    found = rest.get(f"/topics/{topic}/partitions/1/records", params={"offset": 2}, headers=accept("json")).json()
    assert [(each["offset"], each["value"]) for each in found] == [(2, 2), (3, 3)]
    problem(rest.get(f"/topics/{topic}/partitions/1/records", params={"offset": 99}), 400, 40004)
    assert rest.get(f"/topics/{topic}/partitions/1/records", params={"offset": 4, "timeout": 100}).json() == []


def test_errors_of_bad_requests_name_the_problem(rest: httpx.Client, topic: str) -> None:
    record = {"records": [{"value": encoded("x")}]}
    problem(rest.post("/topics/none-such", json=record, headers=kind("binary")), 404, 40401)
    problem(rest.get("/topics/none-such"), 404, 40401)
    problem(rest.get(f"/topics/{topic}/partitions/9"), 404, 40402)
    problem(rest.post(f"/topics/{topic}/partitions/9", json=record, headers=kind("binary")), 404, 40402)
    problem(rest.post(f"/topics/{topic}", json={"records": [{"value": "%"}]}, headers=kind("binary")), 422, 422)
    problem(rest.post(f"/topics/{topic}", json={"records": []}, headers=kind("binary")), 422, 422)
    problem(rest.post(f"/topics/{topic}", content=b"{", headers=kind("json")), 422, 422)
    problem(rest.post(f"/topics/{topic}", json=record, headers={"content-type": "text/plain"}), 415, 415)
    no_schema = {"records": [{"key": 1, "value": 1}]}
    problem(rest.post(f"/topics/{topic}", json=no_schema, headers=kind("avro")), 422, 42201)
    problem(rest.post(f"/topics/{topic}", json={"records": [{"value": 1}]}, headers=kind("avro")), 422, 42202)
    broken = {"value_schema": "{", "records": [{"value": 1}]}
    problem(rest.post(f"/topics/{topic}", json=broken, headers=kind("avro")), 422, 42201)
    problem(rest.post("/consumers/g", json={"format": "xml"}, headers=PLAIN), 422, 422)
    problem(rest.get("/consumers/g/instances/none/records"), 404, 40403)
    instance = Instance(rest, "binary")
    again = rest.post(f"/consumers/{instance.group}", json={"name": "one"}, headers=PLAIN)
    problem(again, 409, 40902)
    problem(rest.get(f"{instance.path}/records", headers=accept("json")), 406, 40601)
    problem(instance.post("subscription", {}), 422, 42204)
    problem(instance.post("subscription", {"topics": ["not a topic"]}), 422, 422)
    instance.close()
