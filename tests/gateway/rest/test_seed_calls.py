"""The two small HTTP APIs, called with curl. Read it from top to bottom as a guide."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import uuid
from typing import Any

import pytest

from support.gateway_process import GatewayProcess

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


class Curl:
    """`curl("-X", "POST", "/topics", "-d", "{…}")`: the status and the answer."""

    def __init__(self, base: str) -> None:
        self.base = base

    def __call__(self, *words: str) -> tuple[int, Any]:
        command = ["curl", "-sS", "--max-time", "40", "-w", "\n%{http_code}"]
        command += [f"{self.base}{word}" if word.startswith("/") else word for word in words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body) if body else None


@pytest.fixture
def curl(gateway: GatewayProcess) -> Curl:
    return Curl(gateway.rest)


JSON = ("-H", "Content-Type: application/json")


def test_a_message_from_publisher_to_subscriber(curl: Curl, topic: str) -> None:
    # Make a topic:                     POST /topics   {name, partitions, retentionPolicy}
    body = json.dumps({"name": topic, "partitions": 1, "retentionPolicy": "7d"})
    status, made = curl("-X", "POST", "/topics", *JSON, "-d", body)
    assert status == 201
    assert made["configs"] == {"retention.ms": "604800000"}

    # Publish a message:                POST /topics/{topic}/publish   {key, value, headers?}
    body = json.dumps({"key": "order_123", "value": "two widgets", "headers": {"trace_id": "abc123"}})
    status, published = curl("-X", "POST", f"/topics/{topic}/publish", *JSON, "-d", body)
    assert status == 200
    assert (published["partition"], published["offset"]) == (0, 0)
    curl("-X", "POST", f"/topics/{topic}/publish", "-d", '{"value": "second"}')

    # Get the next message of a group:  GET /topics/{topic}/subscribe?group={group}&offset={offset}
    status, message = curl(f"/topics/{topic}/subscribe?group=billing-{topic}&offset=earliest")
    assert status == 200
    assert message["key"] == "order_123"
    assert message["value"] == "two widgets"
    assert message["headers"] == {"trace_id": "abc123"}

    # Acknowledge it:                   POST /topics/{topic}/ack   {messageId}
    body = json.dumps({"messageId": message["messageId"]})
    status, acknowledged = curl("-X", "POST", f"/topics/{topic}/ack", *JSON, "-d", body)
    assert (status, acknowledged["acknowledged"]) == (200, True)

    # The group gets the one after it, and then nothing more (204) until the next publish.
    status, following = curl(f"/topics/{topic}/subscribe?group=billing-{topic}")
    assert following["value"] == "second"
    assert curl(f"/topics/{topic}/subscribe?group=billing-{topic}&timeout=300") == (204, None)

    # Any offset can be read again.
    status, replayed = curl(f"/topics/{topic}/subscribe?group=audit-{topic}&offset=0")
    assert replayed["value"] == "two widgets"

    # Remove the topic:                 DELETE /topics/{topic}
    assert curl("-X", "DELETE", f"/topics/{topic}") == (200, {"name": topic, "deleted": True})
    status, gone = curl("-X", "POST", f"/topics/{topic}/publish", *JSON, "-d", '{"value": "x"}')
    assert (status, gone["error_code"]) == (404, 40401)
    assert "POST /topics" in gone["fix"]


def test_produce_consume_commit_by_partition(curl: Curl, topic: str) -> None:
    curl("-X", "POST", "/topics", *JSON, "-d", json.dumps({"name": topic, "partitions": 8}))

    # Any bytes are a message; X-Partition-Key chooses the partition.
    order = '{\n    "order_id": "order_123",\n    "product": "widget",\n    "quantity": 5\n}'
    octets = ("-H", "Content-Type: application/octet-stream", "-H", "X-Partition-Key: order_123")
    path = f"/api/v1/topics/{topic}/messages"
    status, first = curl("-X", "POST", path, *octets, "-H", "X-Header-trace_id: abc123", "--data-binary", order)
    assert status == 200
    assert set(first) == {"topic", "partition", "offset", "timestamp"}
    _, second = curl("-X", "POST", path, *octets, "--data-binary", "again")
    assert (second["partition"], second["offset"]) == (first["partition"], 1)

    # Messages of a partition, from an offset on.
    partition = first["partition"]
    path = f"/api/v1/topics/{topic}/partitions/{partition}/messages"
    status, read = curl(f"{path}?offset=0&limit=100", "-H", f"X-Consumer-Group: processor-{topic}")
    assert status == 200
    assert read["next_offset"] == 2
    message = read["messages"][0]
    assert (message["offset"], message["key"], message["headers"]) == (0, "order_123", {"trace_id": "abc123"})
    assert base64.b64decode(message["value"]).decode() == order
    assert message["timestamp"] == first["timestamp"]

    # Commit how far the group has come; without an offset it then reads on from there.
    body = json.dumps({"topic": topic, "partition": partition, "offset": 1})
    committed = curl("-X", "POST", f"/api/v1/consumer-groups/processor-{topic}/offsets", *JSON, "-d", body)
    assert committed == (200, {"committed": True})
    _, rest = curl(path, "-H", f"X-Consumer-Group: processor-{topic}")
    assert [base64.b64decode(each["value"]) for each in rest["messages"]] == [b"again"]


def test_publishing_twice_with_one_key_publishes_once(curl: Curl, topic: str) -> None:
    curl("-X", "POST", "/topics", *JSON, "-d", json.dumps({"name": topic}))
    publish = ("-X", "POST", f"/topics/{topic}/publish", *JSON, "-H", "Idempotency-Key: 7f1c")
    _, first = curl(*publish, "-d", '{"value": "pay 10"}')
    _, again = curl(*publish, "-d", '{"value": "pay 10"}')
    assert again == first
    _, read = curl(f"/api/v1/topics/{topic}/partitions/0/messages?offset=0")
    assert len(read["messages"]) == 1
    status, refused = curl(*publish, "-d", '{"value": "pay 11"}')
    assert (status, refused["error_code"]) == (422, 42210)
