"""The short calls in detail: groups that share messages, messages that come again, bad input, brokers that are away."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.gateway.kafka.share.routes import RoutedDelivery
from penstock.gateway.rest.native.messages import delivered_id, parse_message_id
from penstock.gateway.rest.native.topics import retention_configs
from penstock.gateway.web.problem import Problem
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess


def problem(response: httpx.Response, status: int, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    assert body["message"]
    assert body["fix"]
    return str(body["message"])


def publish(rest: httpx.Client, topic: str, value: Any, **more: Any) -> dict[str, Any]:
    answer = rest.post(f"/topics/{topic}/publish", json={"value": value, **more})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def receive(rest: httpx.Client, topic: str, group: str, timeout_ms: int = 10_000) -> dict[str, Any] | None:
    answer = rest.get(f"/topics/{topic}/subscribe", params={"group": group, "timeout": timeout_ms})
    assert answer.status_code in (200, 204), answer.text
    return answer.json() if answer.status_code == 200 else None


def acknowledge(rest: httpx.Client, topic: str, message: dict[str, Any]) -> None:
    answer = rest.post(f"/topics/{topic}/ack", json={"messageId": message["messageId"]})
    assert answer.status_code == 200, answer.text


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def test_records_without_a_key_go_to_all_partitions_in_turn(rest: httpx.Client, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(partitions=3)
    slowly = [publish(rest, topic, str(number))["partition"] for number in range(6)]
    assert slowly == [*slowly[:3]] * 2
    assert set(slowly) == {0, 1, 2}
    body = {"records": [{"value": "x" * 100} for _ in range(3000)]}
    kind = {"content-type": "application/vnd.kafka.json.v2+json"}
    answer = rest.post(f"/topics/{topic}", json=body, headers=kind).raise_for_status().json()
    counts = Counter(each["partition"] for each in answer["offsets"])
    assert min(counts[number] for number in range(3)) > 500


def test_callers_of_a_group_share_its_messages(rest: httpx.Client, penstock_cluster: Cluster, group: str) -> None:
    topic = penstock_cluster.create_topic(partitions=3)
    for number in range(30):
        publish(rest, topic, str(number))

    def take(_: int) -> str | None:
        message = receive(rest, topic, group)
        if message is None:
            return None
        acknowledge(rest, topic, message)
        return str(message["value"])

    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(take, range(30)))
    assert sorted(int(each) for each in taken if each is not None) == list(range(30))
    assert receive(rest, topic, group, 200) is None


def test_values_are_strings_json_or_null(rest: httpx.Client, penstock_topic: str) -> None:
    values: list[Any] = ["text", "ünïcode 🚿", {"a": [1, None]}, 5, None, ""]
    for value in values:
        publish(rest, penstock_topic, value)
    read = rest.get(f"/api/v1/topics/{penstock_topic}/partitions/0/messages").json()["messages"]
    stored = [each["value"] and base64.b64decode(each["value"]).decode() for each in read]
    assert stored == ["text", "ünïcode 🚿", '{"a":[1,null]}', "5", None, ""]


@pytest.mark.parametrize("padding", ["", "x" * 100_000], ids=["short", "long"])
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "digits"}], ids=["short way", "ordinary way"])
def test_json_numbers_are_stored_verbatim(
    rest: httpx.Client, penstock_topic: str, headers: dict[str, str], padding: str
) -> None:
    values = [
        "9223372036854775807",
        "18446744073709551616123",
        "12.30",
        "1e400",
        "-0.0",
        "true",
        '[1.10,{"b":1E2,"a":{}},[]]',
        '{"a":1.0,"a":2.00,"\u00fc":"x y"}',
    ]
    for number, value in enumerate(values):
        body = f' {{"key": "k", "padding": "{padding}",\n "value" : {value} }}'
        key = {name: f"{text}-{number}" for name, text in headers.items()}
        rest.post(f"/topics/{penstock_topic}/publish", content=body.encode(), headers=key).raise_for_status()
    read = rest.get(f"/api/v1/topics/{penstock_topic}/partitions/0/messages").json()["messages"]
    assert [base64.b64decode(each["value"]).decode() for each in read] == values


def test_deeply_nested_json_is_stored_or_rejected(rest: httpx.Client, penstock_topic: str) -> None:
    """There is a depth at which a body can just be read; nothing that is done with it later may fail on it."""
    statuses = []
    for depth in range(900, 1010):
        body = '{"value":' + "[" * depth + "]" * depth + "}"
        statuses.append(rest.post(f"/topics/{penstock_topic}/publish", content=body.encode()).status_code)
    assert set(statuses) <= {200, 400, 413}
    assert statuses[-1] == 400


def test_bytes_that_are_not_utf8_are_shown_in_base64(rest: httpx.Client, penstock_topic: str, group: str) -> None:
    rest.post(f"/api/v1/topics/{penstock_topic}/messages", content=b"\xff\x00").raise_for_status()
    message = receive(rest, penstock_topic, group)
    assert message is not None
    assert (message["value"], message["value_encoding"]) == (base64.b64encode(b"\xff\x00").decode(), "base64")


def test_large_messages_are_published_and_too_large_ones_rejected(
    rest: httpx.Client, penstock_cluster: Cluster
) -> None:
    topic = penstock_cluster.create_topic(configs={"max.message.bytes": "11000000"})
    path = f"/api/v1/topics/{topic}/messages"
    assert rest.post(path, content=b"x" * 10_000_000).json()["offset"] == 0
    small = penstock_cluster.create_topic(configs={"max.message.bytes": "1000"})
    problem(rest.post(f"/api/v1/topics/{small}/messages", content=b"x" * 5000), 413, 41301)
    problem(rest.post(path, content=b"x" * 21_000_000), 413, 413)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "value"),
        ("{}", "value"),
        ('{"value": "x", "key": 5}', "$.key"),
        ('{"value": "x", "headers": {"a": 1}}', "$.headers"),
        ('{"value": "x", "headers": []}', "$.headers"),
        ('{"value": NaN}', "not valid JSON"),
        ('{"value": "\\ud800"}', "unpaired surrogate"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_invalid_message_bodies(rest: httpx.Client, penstock_topic: str, body: str, reason: str) -> None:
    answer = rest.post(f"/topics/{penstock_topic}/publish", content=body, headers={"content-type": "application/json"})
    assert reason in problem(answer, 400, 40002)


def test_errors_of_bad_requests_name_the_problem_and_the_fix(
    rest: httpx.Client, penstock_topic: str, group: str
) -> None:
    problem(rest.post("/topics/none-such/publish", json={"value": "x"}), 404, 40401)
    problem(rest.post("/topics/not%20a%20topic/publish", json={"value": "x"}), 400, 40001)
    problem(
        rest.post(f"/topics/{penstock_topic}/publish", content=b"x", headers={"content-type": "text/html"}), 415, 415
    )
    problem(rest.get("/topics/none-such/subscribe", params={"group": group}), 404, 40401)
    problem(rest.get(f"/topics/{penstock_topic}/subscribe", params={"group": ""}), 400, 40001)
    problem(rest.get(f"/topics/{penstock_topic}/subscribe", params={"offset": "soon"}), 400, 40001)
    problem(rest.get(f"/topics/{penstock_topic}/subscribe", params={"offset": "77"}), 400, 40004)
    problem(rest.get(f"/topics/{penstock_topic}/subscribe", params={"timeout": "99999999"}), 400, 40001)
    problem(rest.post(f"/topics/{penstock_topic}/ack", json={"messageId": "nonsense"}), 400, 40002)
    problem(rest.post(f"/topics/{penstock_topic}/ack", json={"messageId": "0-1"}), 400, 40002)
    elsewhere = delivered_id(RoutedDelivery(group, "0" * 32, 9, 1, 1))
    problem(rest.post(f"/topics/{penstock_topic}/ack", json={"messageId": elsewhere}), 404, 40402)
    problem(rest.post(f"/topics/{penstock_topic}/ack", json={}), 400, 40002)
    problem(rest.post("/topics", json={"name": penstock_topic}), 409, 40901)
    problem(rest.post("/topics", json={"name": "x/y"}), 400, 40002)
    problem(rest.post("/topics", json={"name": "x", "partitions": 0}), 400, 40002)
    problem(rest.post("/topics", json={"name": "x", "retentionPolicy": "a while"}), 400, 40002)
    problem(rest.delete("/topics/none-such"), 404, 40401)
    messages = f"/api/v1/topics/{penstock_topic}/partitions"
    problem(rest.get(f"{messages}/7/messages"), 404, 40402)
    problem(rest.get(f"{messages}/x/messages"), 400, 40001)
    problem(rest.get(f"{messages}/0/messages", params={"offset": 5}), 400, 40004)
    problem(rest.get(f"{messages}/0/messages", params={"limit": 0}), 400, 40001)
    offsets = f"/api/v1/consumer-groups/{group}/offsets"
    problem(rest.post(offsets, json={"topic": penstock_topic, "partition": 0}), 400, 40002)
    problem(rest.post(offsets, json={"topic": penstock_topic, "partition": 7, "offset": 0}), 404, 40402)
    problem(rest.post(offsets, json={"topic": "none-such", "partition": 0, "offset": 0}), 404, 40401)
    problem(rest.get("/nowhere"), 404, 404)
    assert problem(rest.put("/topics"), 405, 405)


def test_offsets_of_a_group_with_members_cannot_be_committed_from_outside(
    rest: httpx.Client, penstock_cluster: Cluster, penstock_topic: str, group: str
) -> None:
    consumer = Consumer({"bootstrap.servers": penstock_cluster.bootstrap_servers, "group.id": group})
    try:
        consumer.subscribe([penstock_topic])
        for _ in range(50):
            consumer.poll(0.2)
            if consumer.assignment():
                break
        body = {"topic": penstock_topic, "partition": 0, "offset": 0}
        problem(rest.post(f"/api/v1/consumer-groups/{group}/offsets", json=body), 409, 40901)
    finally:
        consumer.close()


@pytest.mark.slow
def test_unreachable_brokers_are_a_503_until_they_return() -> None:
    with Cluster() as cluster:
        topic = cluster.create_topic()
        # Longer than it takes to connect again on a busy machine: an idempotent producer starts over after a time-out.
        quick = ("-X", "message.timeout.ms=5000", "-X", "socket.timeout.ms=3000")
        with (
            GatewayProcess(cluster.bootstrap_servers, *quick) as gateway,
            httpx.Client(base_url=gateway.rest, timeout=60) as rest,
        ):
            publish(rest, topic, "before")
            cluster.kill()
            away = rest.post(f"/topics/{topic}/publish", json={"value": "meanwhile"})
            problem(away, 503, 50301)
            assert away.headers["retry-after"] == "1"
            assert rest.get("/status/alive").status_code == 200
            cluster.start()
            deadline = time.monotonic() + 60
            answer = rest.post(f"/topics/{topic}/publish", json={"value": "after"})
            while answer.status_code != 200 and time.monotonic() < deadline:
                answer = rest.post(f"/topics/{topic}/publish", json={"value": "after"})
            assert answer.status_code == 200, answer.text + gateway.log()
            assert rest.get("/status/ready").json() == {"status": "ready"}


def test_message_ids_round_trip() -> None:
    for group in ("orders", "ünïcode", "a-b_c", "x" * 200):
        delivery = RoutedDelivery(group, "0123456789abcdef" * 2, 3, 1 << 40, 5)
        for incarnation in (-1, 0, (1 << 62) - 1):
            one = delivery._replace(incarnation=incarnation)
            assert parse_message_id(delivered_id(one)) == one
    member = "0" * 32
    for text in (
        "",
        "1",
        "1-2",
        "-1-2",
        "1-x",
        f"{1 << 31}-1-1-{member}-Zw",
        f"1-{1 << 63}-1-{member}-Zw",
        f"1-2-{1 << 15}-{member}-Zw",
        f"1-2-1-{member}-%%",
        f"1-2-1-{member}-_w",
        f"1-2-1-{member}-",
        f"1-2-1-{member[1:]}-Zw",
        f"1-2-1.-{member}-Zw",
        f"1-2-1.{1 << 63:x}-{member}-Zw",
        "1-2-Zw",
    ):
        with pytest.raises(Problem):
            parse_message_id(text)


@pytest.mark.parametrize(
    ("policy", "configs"),
    [
        (None, {}),
        ("7d", {"retention.ms": "604800000"}),
        ("90 s", {"retention.ms": "90000"}),
        ("forever", {"retention.ms": "-1"}),
        ("compact", {"cleanup.policy": "compact"}),
        ({"timeMs": 5, "sizeBytes": 10}, {"retention.ms": "5", "retention.bytes": "10"}),
        ({"compact": True, "timeMs": 5}, {"retention.ms": "5", "cleanup.policy": "compact,delete"}),
    ],
)
def test_retention_policies(policy: Any, configs: dict[str, str]) -> None:
    assert retention_configs(json.loads(json.dumps(policy))) == configs
