"""The REST Proxy in the small: answers, codes and defaults that Confluent's clients rely on."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import Any

import httpx
import pytest

from penstock.testing import Cluster

PLAIN = {"content-type": "application/vnd.kafka.v2+json"}
JSON_V2 = {"content-type": "application/vnd.kafka.json.v2+json"}
AVRO_V2 = {"content-type": "application/vnd.kafka.avro.v2+json"}
RECORD = json.dumps(
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "string"}]}
)


def problem(response: httpx.Response, status: int, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    return str(body["message"])


@pytest.fixture
def topic(penstock_cluster: Cluster) -> str:
    return penstock_cluster.create_topic(partitions=2)


@pytest.fixture
def base(rest: httpx.Client) -> str:
    return f"/v3/clusters/{rest.get('/v3/clusters').json()['data'][0]['cluster_id']}"


@pytest.fixture
def instance(rest: httpx.Client) -> str:
    """The path of a fresh consumer instance that reads JSON from the beginning."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    body = {"name": "one", "format": "json", "auto.offset.reset": "earliest"}
    assert rest.post(f"/consumers/{group}", json=body, headers=PLAIN).status_code == 200
    return f"/consumers/{group}/instances/one"


def write(rest: httpx.Client, topic: str, partition: int, values: list[Any]) -> None:
    body = {"records": [{"value": value} for value in values]}
    answer = rest.post(f"/topics/{topic}/partitions/{partition}", json=body, headers=JSON_V2)
    assert answer.status_code == 200, answer.text


def read(rest: httpx.Client, instance: str, count: int) -> list[Any]:
    found: list[Any] = []
    accept = {"accept": "application/vnd.kafka.json.v2+json"}
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        answer = rest.get(f"{instance}/records", params={"timeout": 1000}, headers=accept)
        assert answer.status_code == 200, answer.text
        found += [each["value"] for each in answer.json()]
    return found


def test_seek_works_right_after_the_assignment(rest: httpx.Client, topic: str, instance: str) -> None:
    write(rest, topic, 0, list(range(5)))
    write(rest, topic, 1, list(range(10, 15)))
    first, second = {"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}
    assert rest.post(f"{instance}/assignments", json={"partitions": [first, second]}, headers=PLAIN).status_code == 204
    wanted = {"offsets": [{**first, "offset": 3}]}
    answer = rest.post(f"{instance}/positions", json=wanted, headers=PLAIN)
    assert answer.status_code == 204, answer.text
    assert sorted(read(rest, instance, 7)) == [3, 4, 10, 11, 12, 13, 14]
    # The partition that is not named keeps its position.
    assert rest.post(f"{instance}/positions", json=wanted, headers=PLAIN).status_code == 204
    assert read(rest, instance, 2) == [3, 4]


@pytest.mark.parametrize(("where", "expected"), [("beginning", [0, 1, 2]), ("end", [3])])
def test_seek_to_beginning_and_end_works_right_after_the_assignment(
    rest: httpx.Client, topic: str, instance: str, where: str, expected: list[int]
) -> None:
    write(rest, topic, 0, [0, 1, 2])
    places = {"partitions": [{"topic": topic, "partition": 0}]}
    assert rest.post(f"{instance}/assignments", json=places, headers=PLAIN).status_code == 204
    answer = rest.post(f"{instance}/positions/{where}", json=places, headers=PLAIN)
    assert answer.status_code == 204, answer.text
    if where == "end":
        assert read_nothing(rest, instance)
        write(rest, topic, 0, expected)
    assert read(rest, instance, len(expected)) == expected


def read_nothing(rest: httpx.Client, instance: str) -> bool:
    """Let the instance find out where the end is."""
    accept = {"accept": "application/vnd.kafka.json.v2+json"}
    return bool(rest.get(f"{instance}/records", params={"timeout": 3000}, headers=accept).json() == [])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics/{topic}", {"records": [{"vlaue": 1}]}),
        ("/topics/{topic}", {"records": [{"value": 1}], "value_shema": "{}"}),
        ("/topics/{topic}/partitions/0", {"records": [{"vlaue": 1}]}),
        ("/topics/{topic}/partitions/0", {"records": [{"value": 1, "partition": 1}]}),
        ("/consumers/some-group", {"auto.offset.rest": "earliest"}),
    ],
)
def test_misspelt_fields_are_refused_and_nothing_is_written(
    rest: httpx.Client, topic: str, path: str, body: Any
) -> None:
    text = problem(
        rest.post(path.format(topic=topic), json=body, headers=JSON_V2 | PLAIN if "consumers" in path else JSON_V2),
        422,
        422,
    )
    assert "unexpected" in text
    for partition in (0, 1):
        marks = rest.get(f"/topics/{topic}/partitions/{partition}/offsets").json()
        assert marks == {"beginning_offset": 0, "end_offset": 0}


@pytest.mark.parametrize(
    "body",
    [
        {"vlaue": {"type": "JSON", "data": 1}},
        {"value": {"type": "JSON", "dta": 1}},
        {"value": {"type": "JSON", "data": 1}, "headers": [{"name": "h", "valu": "eA=="}]},
    ],
)
def test_misspelt_fields_are_refused_by_v3_too(rest: httpx.Client, base: str, topic: str, body: Any) -> None:
    assert "unexpected" in problem(rest.post(f"{base}/topics/{topic}/records", json=body), 400, 40002)


def test_a_pattern_matches_whole_names_of_topics(rest: httpx.Client, penstock_cluster: Cluster, instance: str) -> None:
    stem = f"pattern-{uuid.uuid4().hex[:8]}"
    names = [f"{stem}-12", f"{stem}-x", f"{stem}-12-dead", f"before-{stem}-x"]
    for number, name in enumerate(names):
        penstock_cluster.create_topic(name)
        write(rest, name, 0, [number])
    pattern = rf"{stem}-(?:\d{{2}}|x)"
    answer = rest.post(f"{instance}/subscription", json={"topic_pattern": pattern}, headers=PLAIN)
    assert answer.status_code == 204, answer.text
    assert sorted(read(rest, instance, 2)) == [0, 1]
    assert read_nothing(rest, instance)
    assert rest.get(f"{instance}/subscription").json() == {"topics": sorted(names[:2])}


@pytest.mark.parametrize("pattern", ["(unclosed", "(?=ahead)x", r"(a)\1", "(?i)orders", "((a{999}){999}){999}"])
def test_unsupported_topic_pattern_is_rejected(rest: httpx.Client, instance: str, pattern: str) -> None:
    answer = rest.post(f"{instance}/subscription", json={"topic_pattern": pattern}, headers=PLAIN)
    assert repr(pattern) in problem(answer, 422, 42204)


def test_schema_ids_may_be_text(rest: httpx.Client, registry: httpx.Client, base: str, topic: str) -> None:
    schema_id = registry.post(f"/subjects/{topic}-value/versions", json={"schema": '"int"'}).json()["id"]
    body = {"value_schema_id": str(schema_id), "records": [{"value": 5}]}
    answer = rest.post(f"/topics/{topic}", json=body, headers=AVRO_V2)
    assert answer.status_code == 200, answer.text
    assert answer.json()["value_schema_id"] == schema_id
    produced = rest.post(f"{base}/topics/{topic}/records", json={"value": {"schema_id": str(schema_id), "data": 6}})
    assert produced.status_code == 200, produced.text
    problem(rest.post(f"/topics/{topic}", json={**body, "value_schema_id": "five"}, headers=AVRO_V2), 422, 422)


def test_v3_codes_for_existing_and_missing_topics(rest: httpx.Client, base: str, topic: str) -> None:
    for path in ("", "/partitions", "/partitions/0", "/configs", "/configs/retention.ms"):
        problem(rest.get(f"{base}/topics/none-such{path}"), 404, 40403)
    problem(rest.delete(f"{base}/topics/none-such"), 404, 40403)
    problem(rest.patch(f"{base}/topics/none-such", json={"partitions_count": 3}), 404, 40403)
    problem(rest.put(f"{base}/topics/none-such/configs/retention.ms", json={"value": "1"}), 404, 40403)
    problem(rest.post(f"{base}/topics", json={"topic_name": topic}), 400, 40002)
    problem(rest.post(f"{base}/topics", json={"topic_name": "x", "replication_factor": 9}), 400, 40002)
    # Producing is the exception: there the proxy has waited for the topic in vain.
    problem(rest.post(f"{base}/topics/none-such/records", json={}), 404, 40401)
    # The other families keep their own codes.
    problem(rest.get("/topics/none-such"), 404, 40401)
    problem(rest.get("/v3/clusters/other/topics"), 404, 404)


def test_authorized_operations_come_with_topics(rest: httpx.Client, base: str, topic: str) -> None:
    assert rest.get(f"{base}/topics/{topic}").json()["authorized_operations"] == []
    included = rest.get(f"{base}/topics/{topic}", params={"include_authorized_operations": "true"}).json()
    assert {"READ", "WRITE", "DESCRIBE", "ALTER_CONFIGS"} <= set(included["authorized_operations"])
    listed = rest.get(f"{base}/topics", params={"includeAuthorizedOperations": "true"}).json()["data"]
    [mine] = [each for each in listed if each["topic_name"] == topic]
    assert mine["authorized_operations"] == included["authorized_operations"]
    made = rest.post(f"{base}/topics", json={"topic_name": f"made-{uuid.uuid4().hex[:8]}"}).json()
    assert made["authorized_operations"] == []


def produce(rest: httpx.Client, base: str, topic: str, value: dict[str, Any]) -> httpx.Response:
    return rest.post(f"{base}/topics/{topic}/records", json={"value": value})


def test_answers_name_the_schema_that_was_used(
    rest: httpx.Client, registry: httpx.Client, base: str, topic: str
) -> None:
    data = {"id": "1"}
    first = produce(rest, base, topic, {"type": "AVRO", "schema": RECORD, "data": data}).json()["value"]
    schema_id = registry.get(f"/subjects/{topic}-value/versions/latest").json()["id"]
    expected = {"type": "AVRO", "subject": f"{topic}-value", "schema_id": schema_id, "schema_version": 1, "size": 7}
    assert first == expected
    for named in ({"schema_id": schema_id}, {"schema_version": 1}, {"subject": f"{topic}-value"}, {}):
        assert produce(rest, base, topic, {**named, "data": data}).json()["value"] == expected, named
    batch = {"entries": [{"id": "1", "value": {"schema_version": 1, "data": data}}]}
    [entry] = rest.post(f"{base}/topics/{topic}/records:batch", json=batch).json()["successes"]
    assert entry["value"] == expected


def test_strategies_choose_the_subject(rest: httpx.Client, base: str, topic: str) -> None:
    name = f"Order{uuid.uuid4().hex[:8]}"
    schema = RECORD.replace("Order", name)
    data = {"id": "1"}
    for strategy, subject in (
        ("RECORD_NAME", f"shop.{name}"),
        ("TOPIC_RECORD_NAME", f"{topic}-shop.{name}"),
        ("TOPIC_NAME", f"{topic}-value"),
    ):
        value = {"type": "AVRO", "schema": schema, "subject_name_strategy": strategy, "data": data}
        answer = produce(rest, base, topic, value)
        assert answer.json()["value"]["subject"] == subject, answer.text
    # Without a type the strategy alone names the subject, whose latest schema is used.
    chosen = produce(rest, base, topic, {"subject_name_strategy": "TOPIC_NAME", "data": data}).json()["value"]
    assert (chosen["type"], chosen["subject"], chosen["schema_version"]) == ("AVRO", f"{topic}-value", 1)
    by_id = {"subject_name_strategy": "RECORD_NAME", "schema_id": chosen["schema_id"], "data": data}
    assert produce(rest, base, topic, by_id).json()["value"]["subject"] == f"shop.{name}"
    unclear = produce(rest, base, topic, {"subject_name_strategy": "RECORD_NAME", "data": data})
    assert "RECORD_NAME" in problem(unclear, 400, 400)


@pytest.mark.parametrize(
    "value",
    [
        {"subject": "a", "subject_name_strategy": "TOPIC_NAME", "data": 1},
        {"schema_id": 1, "schema_version": 1, "data": 1},
        {"schema": '"int"', "data": 1},
        {"type": "JSON", "schema_id": 1, "data": 1},
        {"type": "BINARY", "subject_name_strategy": "TOPIC_NAME", "data": "AA=="},
    ],
)
def test_contradicting_parameters_are_rejected(rest: httpx.Client, base: str, topic: str, value: Any) -> None:
    problem(produce(rest, base, topic, value), 400, 400)


def test_missing_schemas(rest: httpx.Client, base: str, topic: str) -> None:
    problem(produce(rest, base, topic, {"schema_id": 2_000_000_000, "data": 1}), 422, 42207)
    problem(produce(rest, base, topic, {"schema_version": 9, "data": 1}), 400, 400)
    problem(produce(rest, base, topic, {"subject_name_strategy": "TOPIC_NAME", "data": 1}), 422, 42207)


def test_protobuf_answers_show_fields_with_their_defaults(rest: httpx.Client, topic: str) -> None:
    fields = "string name = 1; int32 size = 2; repeated int32 many = 3; optional int32 maybe = 4;"
    schema = f'syntax = "proto3"; message M {{ {fields} }}'
    form = "application/vnd.kafka.protobuf.v2+json"
    body = {"value_schema": schema, "records": [{"value": {"name": "x"}}]}
    answer = rest.post(f"/topics/{topic}/partitions/0", json=body, headers={"content-type": form})
    assert answer.status_code == 200, answer.text
    [record] = rest.get(f"/topics/{topic}/partitions/0/records", headers={"accept": form}).json()
    assert record["value"] == {"name": "x", "size": 0, "many": []}


@pytest.mark.parametrize("kind", ["JSON", "JSONSCHEMA"])
def test_json_numbers_are_written_verbatim(rest: httpx.Client, base: str, topic: str, kind: str) -> None:
    text = '{"b":9223372036854775807,"a":[12.30,1e400],"a":"caf\u00e9"}'
    schema = '"schema":"{}",' if kind == "JSONSCHEMA" else ""
    one = f'{{"partition_id": 0, "value": {{"type": "{kind}", {schema} "data": {text}}}}}'
    batch = f'{{"entries": [{{"id": "1", {one[1:]}]}}'
    for path, body in (("records", one), ("records", one + one), ("records:batch", batch)):
        answer = rest.post(
            f"{base}/topics/{topic}/{path}", content=body.encode(), headers={"content-type": "application/json"}
        )
        assert answer.status_code in (200, 207), answer.text
    headers = {"accept": "application/vnd.kafka.binary.v2+json"}
    found = rest.get(f"/topics/{topic}/partitions/0/records", headers=headers).json()
    written = {base64.b64decode(record["value"]).split(b"{", 1)[1] for record in found}
    assert (len(found), written) == (4, {text.replace("\\u00e9", "é").encode()[1:]})


@pytest.mark.parametrize("form", ["json", "jsonschema"])
@pytest.mark.parametrize("count", [1, 2000])
def test_v2_writes_json_numbers_verbatim(rest: httpx.Client, topic: str, form: str, count: int) -> None:
    text = '{"b":9223372036854775807,"a":[12.30,1e400],"a":"caf\\u00e9"}'
    records = ", ".join([f'{{"key": 1.10, "value": {text}}}'] * count)
    schemas = '"key_schema": "{}", "value_schema": "{}",' if form == "jsonschema" else ""
    headers = {"content-type": f"application/vnd.kafka.{form}.v2+json"}
    body = f'{{{schemas} "records": [{records}]}}'.encode()
    answer = rest.post(f"/topics/{topic}/partitions/0", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    accept = {"accept": "application/vnd.kafka.binary.v2+json"}
    found = rest.get(f"/topics/{topic}/partitions/0/records", params={"max_bytes": 1}, headers=accept).json()
    key, value = (base64.b64decode(found[0][part]) for part in ("key", "value"))
    assert key.endswith(b"1.10")
    assert value.split(b"{", 1)[1] == text.replace("\\u00e9", "é").encode()[1:]
    # It comes back the same way, too.
    accept = {"accept": headers["content-type"]}
    back = rest.get(f"/topics/{topic}/partitions/0/records", params={"max_bytes": 1}, headers=accept).text
    assert '"value":{"b":9223372036854775807,"a":[12.30,1e400],"a":"café"}' in back
