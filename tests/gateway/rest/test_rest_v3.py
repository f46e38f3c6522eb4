"""Confluent's REST Proxy v3: cluster, topics, settings, groups with their lags, and records."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.testing import Cluster


def problem(response: httpx.Response, status: int, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    assert body["message"]
    return str(body["message"])


@pytest.fixture
def base(rest: httpx.Client) -> str:
    listed = rest.get("/v3/clusters").json()
    assert listed["kind"] == "KafkaClusterList"
    return f"/v3/clusters/{listed['data'][0]['cluster_id']}"


@pytest.fixture
def topic(penstock_cluster: Cluster) -> str:
    return penstock_cluster.create_topic(partitions=2)


def test_the_cluster_and_its_brokers(rest: httpx.Client, base: str) -> None:
    cluster = rest.get(base).json()
    assert cluster["kind"] == "KafkaCluster"
    assert rest.get(httpx.URL(cluster["metadata"]["self"]).path).json() == cluster
    assert rest.get("/v3/clusters/-").json() == cluster
    [broker] = rest.get(f"{base}/brokers").json()["data"]
    assert (broker["kind"], broker["broker_id"]) == ("KafkaBroker", 1)
    assert rest.get(f"{base}/brokers/1").json() == broker
    assert rest.get(f"{base}/brokers/1/configs").json()["kind"] == "KafkaBrokerConfigList"
    problem(rest.get(f"{base}/brokers/77"), 404, 40404)
    problem(rest.get("/v3/clusters/other"), 404, 404)


def test_topic_is_created_read_and_deleted(rest: httpx.Client, base: str) -> None:
    name = f"v3-{uuid.uuid4().hex[:8]}"
    configs = [{"name": "retention.ms", "value": "3600000"}]
    body = {"topic_name": name, "partitions_count": 2, "configs": configs}
    checked = rest.post(f"{base}/topics", json={**body, "validate_only": True})
    assert checked.status_code == 200
    made = rest.post(f"{base}/topics", json=body)
    assert (made.status_code, made.json()["partitions_count"]) == (201, 2)
    assert rest.get(f"{base}/topics/{name}").json() == made.json()
    problem(rest.post(f"{base}/topics", json=body), 400, 40002)
    shown = rest.get(f"{base}/topics/{name}/configs/retention.ms").json()
    assert (shown["value"], shown["is_default"], shown["source"]) == ("3600000", False, "DYNAMIC_TOPIC_CONFIG")
    assert rest.put(f"{base}/topics/{name}/configs/retention.ms", json={"value": "60000"}).status_code == 204
    assert rest.get(f"{base}/topics/{name}/configs/retention.ms").json()["value"] == "60000"
    assert rest.delete(f"{base}/topics/{name}/configs/retention.ms").status_code == 204
    assert rest.get(f"{base}/topics/{name}/configs/retention.ms").json()["is_default"] is True
    changes = {
        "data": [{"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "operation": "DELETE"}]
    }
    assert rest.post(f"{base}/topics/{name}/configs:alter", json=changes).status_code == 204
    assert rest.get(f"{base}/topics/{name}/configs/cleanup.policy").json()["value"] == "compact"
    assert rest.patch(f"{base}/topics/{name}", json={"partitions_count": 3}).json()["partitions_count"] == 3
    problem(rest.patch(f"{base}/topics/{name}", json={"partitions_count": 1}), 400, 40002)
    assert rest.delete(f"{base}/topics/{name}").status_code == 204
    problem(rest.get(f"{base}/topics/{name}"), 404, 40403)


def test_partitions_and_replicas(rest: httpx.Client, base: str, topic: str) -> None:
    path = f"{base}/topics/{topic}/partitions"
    listed = rest.get(path).json()["data"]
    assert [each["partition_id"] for each in listed] == [0, 1]
    assert rest.get(f"{path}/1").json() == listed[1]
    [replica] = rest.get(f"{path}/1/replicas").json()["data"]
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (1, True, True)
    assert rest.get(f"{path}/1/replicas/1").json() == replica
    offset = rest.get(f"{path}/1/offset").json()
    assert (offset["earliest_offset"], offset["latest_offset"]) == (0, 0)
    assert replica in rest.get(f"{base}/brokers/1/partition-replicas").json()["data"]
    problem(rest.get(f"{path}/7"), 404, 40402)
    problem(rest.get(f"{path}/0/replicas/9"), 404, 40404)


def test_topic_lists_are_paged(rest: httpx.Client, base: str, topic: str) -> None:
    seen: list[str] = []
    following: str | None = f"{base}/topics?page_size=2"
    while following:
        page = rest.get(following).json()
        assert len(page["data"]) <= 2
        seen += [each["topic_name"] for each in page["data"]]
        link = page["metadata"]["next"]
        following = f"{base}/topics?page_size=2&{httpx.URL(link).query.decode()}" if link else None
    assert topic in seen
    assert seen == sorted(set(seen))
    problem(rest.get(f"{base}/topics", params={"page_token": "%%%"}), 400, 40001)


def produce(rest: httpx.Client, base: str, topic: str, body: Any) -> dict[str, Any]:
    answer = rest.post(f"{base}/topics/{topic}/records", json=body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def test_records_of_every_kind(rest: httpx.Client, base: str, topic: str) -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    headers = [{"name": "h", "value": base64.b64encode(b"x").decode()}]
    answer = produce(
        rest, base, topic, {"partition_id": 1, "value": {"type": "BINARY", "data": encoded}, "headers": headers}
    )
    assert (answer["error_code"], answer["partition_id"], answer["offset"]) == (200, 1, 0)
    assert answer["value"] == {"type": "BINARY", "size": 2}
    produce(rest, base, topic, {"partition_id": 1, "value": {"type": "JSON", "data": {"a": 1}}})
    produce(rest, base, topic, {"partition_id": 1, "key": {"type": "STRING", "data": "k"}, "timestamp": 5000})
    read = rest.get(f"/api/v1/topics/{topic}/partitions/1/messages").json()["messages"]
    assert [each["value"] and base64.b64decode(each["value"]) for each in read] == [b"\x00\xff", b'{"a":1}', None]
    assert read[0]["headers"] == {"h": "x"}
    assert (read[2]["key"], read[2]["timestamp"]) == ("k", 5000)


def test_records_with_schemas(rest: httpx.Client, registry: httpx.Client, base: str, topic: str) -> None:
    value = {"type": "AVRO", "schema": '"int"', "data": 5}
    produce(rest, base, topic, {"partition_id": 0, "value": value})
    schema_id = registry.get(f"/subjects/{topic}-value/versions/latest").json()["id"]
    produce(rest, base, topic, {"partition_id": 0, "value": {"type": "AVRO", "schema_id": schema_id, "data": 6}})
    produce(rest, base, topic, {"partition_id": 0, "value": {"type": "AVRO", "data": 7}})
    accept = {"accept": "application/vnd.kafka.avro.v2+json"}
    read = rest.get(f"/topics/{topic}/partitions/0/records", headers=accept).json()
    assert [each["value"] for each in read] == [5, 6, 7]


def test_many_records_in_one_body_are_answered_one_by_one(rest: httpx.Client, base: str, topic: str) -> None:
    bodies = [{"partition_id": 0, "value": {"type": "JSON", "data": n}} for n in range(3)]
    bodies.insert(1, {"partition_id": 99, "value": {"type": "JSON", "data": 0}})
    text = "".join(json.dumps(body) for body in bodies)
    answer = rest.post(f"{base}/topics/{topic}/records", content=text, headers={"content-type": "application/json"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["error_code"] for line in lines] == [200, 40402, 200, 200]
    assert [line["offset"] for line in lines if line["error_code"] == 200] == [0, 1, 2]


def test_batch_responses_contain_each_outcome(rest: httpx.Client, base: str, topic: str) -> None:
    entries = [
        {"id": "a", "partition_id": 0, "value": {"type": "STRING", "data": "x"}},
        {"id": "b", "partition_id": 0, "value": {"type": "BINARY", "data": "%"}},
    ]
    answer = rest.post(f"{base}/topics/{topic}/records:batch", json={"entries": entries})
    assert answer.status_code == 207
    body = answer.json()
    assert [(each["id"], each["offset"]) for each in body["successes"]] == [("a", 0)]
    assert [(each["id"], each["error_code"]) for each in body["failures"]] == [("b", 40002)]


def test_groups_and_their_lags(rest: httpx.Client, base: str, topic: str, penstock_cluster: Cluster) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    for number in range(5):
        produce(rest, base, topic, {"partition_id": 0, "value": {"type": "JSON", "data": number}})
    consumer = Consumer(
        {
            "bootstrap.servers": penstock_cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "lagging",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        for _ in range(2):
            message = consumer.poll(20)
            assert message is not None
        consumer.commit(message=message, asynchronous=False)
        shown = rest.get(f"{base}/consumer-groups/{group}").json()
        assert (shown["consumer_group_id"], shown["state"]) == (group, "STABLE")
        listed = rest.get(f"{base}/consumer-groups").json()["data"]
        assert group in [each["consumer_group_id"] for each in listed]
        [member] = rest.get(f"{base}/consumer-groups/{group}/consumers").json()["data"]
        assert member["client_id"] == "lagging"
        path = f"{base}/consumer-groups/{group}/consumers/{member['consumer_id']}"
        assert rest.get(path).json() == member
        assigned = rest.get(f"{path}/assignments").json()["data"]
        assert [each["partition_id"] for each in assigned] == [0, 1]
        [lag] = rest.get(f"{base}/consumer-groups/{group}/lags").json()["data"]
        assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 5, 3)
        assert lag["consumer_id"] == member["consumer_id"]
        assert rest.get(f"{base}/consumer-groups/{group}/lags/{topic}/partitions/0").json() == lag
        summary = rest.get(f"{base}/consumer-groups/{group}/lag-summary").json()
        assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (3, 3, topic)
    finally:
        consumer.close()
    problem(rest.get(f"{base}/consumer-groups/none-such-{group}"), 404, 40405)


def test_errors_of_bad_requests_name_the_problem(rest: httpx.Client, base: str, topic: str) -> None:
    path = f"{base}/topics/{topic}"
    problem(rest.post(f"{base}/topics", json={"topic_name": "no spaces"}), 400, 40002)
    problem(rest.post(f"{base}/topics", json={}), 400, 40002)
    problem(rest.post(f"{base}/topics", json={"topic_name": "x", "partitions_count": 1.0}), 400, 40002)
    problem(rest.post(f"{base}/topics", json={"topic_name": "x", "replication_factor": 9}), 400, 40002)
    wrong = {"topic_name": "x", "configs": [{"name": "no.such", "value": "1"}]}
    problem(rest.post(f"{base}/topics", json=wrong), 400, 40002)
    problem(rest.post(f"{path}/records", json={"value": {"type": "BINARY", "data": 5}}), 400, 40002)
    problem(rest.post(f"{path}/records", json={"value": {"type": "XML", "data": "x"}}), 400, 40002)
    problem(rest.post(f"{path}/records", content=b"{", headers={"content-type": "application/json"}), 400, 40002)
    problem(rest.post(f"{path}/records", json={"partition_id": 9}), 404, 40402)
    problem(rest.post(f"{base}/topics/none-such/records", json={}), 404, 40401)
    problem(rest.get(f"{path}/configs/no.such"), 404, 40405)
    problem(rest.put(f"{path}/configs/retention.ms", json={"value": "soon"}), 400, 40002)
    problem(rest.post(f"{path}/configs:alter", json={"data": [{"name": "retention.ms"}]}), 400, 40002)
    problem(rest.get(f"{base}/consumer-groups/x/lag-summary"), 404, 40405)
