"""The routes behind the pages: pages of topics, searches in records, groups that are moved, dead letters."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx

AVRO = {"type": "record", "name": "Sale", "fields": [{"name": "item", "type": "string"}]}


def produce(rest: httpx.Client, topic: str, value: Any, key: str | None = None, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"value": {"type": "JSON", "data": value}, **more}
    if key is not None:
        body["key"] = {"type": "STRING", "data": key}
    answer = rest.post(f"/v3/clusters/-/topics/{topic}/records", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def topics_of(rest: httpx.Client, **query: Any) -> dict[str, Any]:
    answer = rest.get("/api/v1/topics", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def messages(rest: httpx.Client, topic: str, **query: Any) -> list[dict[str, Any]]:
    answer = rest.get(f"/api/v1/topics/{topic}/messages", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["messages"])


def test_cluster_returns_brokers_links_and_health(rest: httpx.Client) -> None:
    cluster = rest.get("/api/v1/cluster").json()
    assert [broker["id"] for broker in cluster["brokers"]] == [1, 2, 3]
    assert cluster["controller"] in (1, 2, 3)
    assert cluster["offline"] == 0
    assert {(link["leader"], link["follower"]) for link in cluster["links"]} <= {
        (leader, follower) for leader in (1, 2, 3) for follower in (1, 2, 3) if leader != follower
    }


def test_quorum_has_one_leader_and_two_voters(rest: httpx.Client) -> None:
    quorum = rest.get("/api/v1/cluster/quorum").json()
    assert sorted(node["role"] for node in quorum["nodes"]) == ["leader", "voter", "voter"]
    assert quorum["leader"] in (1, 2, 3)


def test_topics_come_by_page_and_search(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    names = sorted(new_topic("paging") for _ in range(5))
    first = topics_of(rest, search="PAGING", page_size=2)
    assert (first["total"], first["pages"]) == (5, 3)
    assert [topic["name"] for topic in first["topics"]] == names[:2]
    assert [topic["name"] for topic in topics_of(rest, search="paging", page_size=2, page=3)["topics"]] == names[4:]
    assert [topic["name"] for topic in topics_of(rest, search="paging", page=99, page_size=2)["topics"]] == names[4:]
    assert topics_of(rest, search="paging", sort="-name", page_size=1)["topics"][0]["name"] == names[-1]


def test_internal_topics_are_shown_on_demand(rest: httpx.Client) -> None:
    assert all(not topic["internal"] for topic in topics_of(rest)["topics"])
    assert "_schemas" in {topic["name"] for topic in topics_of(rest, internal="true")["topics"]}


def test_topic_returns_leaders_replicas_and_offsets(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for number in range(3):
        produce(rest, topic, number, partition_id=1)
    row = rest.get(f"/api/v1/topics/{topic}").json()["partition_list"][1]
    assert (row["beginning"], row["end"]) == (0, 3)
    assert row["leader"] in row["in_sync"]
    assert sorted(row["replicas"]) == [1, 2, 3]
    assert row["size_bytes"] > 0


def test_messages_by_place_key_and_content(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for number in range(20):
        produce(rest, topic, {"number": number, "even": number % 2 == 0}, key=f"key-{number}")
    newest = messages(rest, topic, limit=5)
    assert [json.loads(message["value"]["text"])["number"] for message in newest] == [19, 18, 17, 16, 15]
    oldest = messages(rest, topic, limit=3, **{"from": "earliest"})
    assert [json.loads(message["value"]["text"])["number"] for message in oldest] == [0, 1, 2]
    assert [message["key"]["text"] for message in messages(rest, topic, key="key-7")] == ["key-7"]
    assert len(messages(rest, topic, contains='"EVEN":TRUE', limit=100)) == 10
    [place] = messages(rest, topic, key="key-7")
    after = messages(rest, topic, partition=place["partition"], offset=place["offset"], **{"from": "offset"})
    assert after[0]["key"]["text"] == "key-7"
    later = messages(rest, topic, time=place["timestamp"] + 3_600_000, **{"from": "time"})
    assert later == []


def test_values_are_decoded_by_what_they_are(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    produce(rest, topic, {"a": 1})
    rest.post(f"/api/v1/topics/{topic}/messages", content=b"plain words")
    rest.post(f"/api/v1/topics/{topic}/messages", content=bytes([1, 2, 255]))
    sale = {"type": "AVRO", "schema": json.dumps(AVRO), "data": {"item": "tea"}}
    assert rest.post(f"/v3/clusters/-/topics/{topic}/records", json={"value": sale}).status_code == 200
    shown = [message["value"] for message in messages(rest, topic, **{"from": "earliest"})]
    assert [value["format"] for value in shown] == ["json", "text", "hex", "schema"]
    assert shown[2]["text"] == "01 02 ff"
    assert json.loads(shown[3]["text"]) == {"item": "tea"}
    assert [value["value"]["format"] for value in messages(rest, topic, value_format="hex")] == ["hex"] * 4


def test_group_is_reset_after_a_preview_over_rest(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    for number in range(10):
        produce(rest, topic, number)
    group = f"group-of-{topic}"
    commit = {"topic": topic, "partition": 0, "offset": 9}
    assert rest.post(f"/api/v1/consumer-groups/{group}/offsets", json=commit).status_code == 200
    reset = f"/api/v1/consumer-groups/{group}/reset"
    looked = rest.post(reset, json={"topic": topic, "to": "shift", "value": -4, "dry_run": True}).json()
    assert looked["moves"] == [{"topic": topic, "partition": 0, "from": 9, "to": 5}]
    assert rest.get(f"/api/v1/consumer-groups/{group}").json()["lag"] == 1
    assert rest.post(reset, json={"topic": topic, "to": "earliest"}).status_code == 200
    shown = rest.get(f"/api/v1/consumer-groups/{group}").json()
    assert shown["lag"] == 10
    assert shown["history"][0]["lags"] == {topic: 1}
    listed = rest.get("/api/v1/consumer-groups", params={"search": topic}).json()["groups"]
    assert [(each["name"], each["lag"]) for each in listed] == [(group, 10)]
    assert rest.post(reset, json={"topic": topic, "to": "offset"}).status_code == 400
    assert rest.delete(f"/api/v1/consumer-groups/{group}").status_code == 204
    assert rest.get(f"/api/v1/consumer-groups/{group}").status_code == 404


def test_dead_letter_is_replayed_without_its_headers(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    origin = new_topic("origin", 1)
    letters = new_topic(partitions=1, name=f"dlq.{origin}")
    headers = [{"name": "penstock.dlq.reason", "value": "YmFk"}, {"name": "trace", "value": "MQ=="}]
    produce(rest, letters, {"order": 1}, key="k", headers=headers)
    listed = {topic["name"]: topic for topic in rest.get("/api/v1/dead-letters").json()["topics"]}
    assert (listed[letters]["records"], listed[letters]["origin"]) == (1, origin)
    answer = rest.post(f"/api/v1/dead-letters/{letters}/replay", json={"partition": 0, "offset": 0})
    assert answer.json()["replayed"] == [{"offset": 0, "topic": origin, "partition": 0, "new_offset": 0}]
    [message] = messages(rest, origin)
    assert [header["name"] for header in message["headers"]] == ["trace"]
    refused = rest.post(f"/api/v1/dead-letters/{origin}/replay", json={"partition": 0, "offset": 0})
    assert refused.status_code == 400


def test_partition_moves_to_the_brokers_that_are_named(rest: httpx.Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    move = {"moves": [{"topic": topic, "partition": 0, "replicas": [3, 1]}]}
    assert rest.post("/api/v1/reassignments", json=move).status_code == 202
    deadline = time.monotonic() + 30
    while rest.get(f"/api/v1/topics/{topic}").json()["partition_list"][0]["replicas"] != [3, 1]:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    nowhere = {"moves": [{"topic": topic, "partition": 0, "replicas": [77]}]}
    refused = rest.post("/api/v1/reassignments", json=nowhere)
    assert refused.status_code == 400
    assert "77" in refused.json()["message"]


def test_files_of_the_console_are_served_with_a_tag(rest: httpx.Client) -> None:
    page = rest.get("/console/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    again = rest.get("/console/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert rest.get("/console").headers["location"].endswith("console/")
    assert rest.get("/console/none.js").status_code == 404
