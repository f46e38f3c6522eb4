"""Live tails: server-sent events and WebSockets, from any offset, for as long as the client is connected."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from penstock.testing import Cluster


def publish(rest: httpx.Client, topic: str, value: str) -> None:
    rest.post(f"/topics/{topic}/publish", json={"key": "k", "value": value}).raise_for_status()


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The id and the data of each event."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("id: "):
            name = line[4:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def test_events_come_as_they_are_published(rest: httpx.Client, penstock_topic: str) -> None:
    publish(rest, penstock_topic, "before")
    with rest.stream("GET", f"/topics/{penstock_topic}/tail", params={"offset": "earliest"}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        following = events(response)
        assert next(following)[1]["value"] == "before"
        publisher = threading.Timer(0.3, publish, (rest, penstock_topic, "after"))
        publisher.start()
        name, record = next(following)
        publisher.join()
        assert (name, record["value"], record["key"], record["offset"]) == ("0-1", "after", "k", 1)


def test_a_tail_starts_at_the_requested_offset(rest: httpx.Client, penstock_topic: str) -> None:
    for number in range(5):
        publish(rest, penstock_topic, str(number))
    with rest.stream("GET", f"/topics/{penstock_topic}/tail", params={"offset": 3, "partition": 0}) as response:
        following = events(response)
        assert [next(following)[1]["value"] for _ in range(2)] == ["3", "4"]


def test_a_websocket_gets_the_same(rest: httpx.Client, penstock_topic: str) -> None:
    publish(rest, penstock_topic, "hello")
    url = str(rest.base_url).replace("http", "ws").rstrip("/")
    with connect(f"{url}/topics/{penstock_topic}/tail?offset=earliest") as socket:
        assert json.loads(socket.recv(20))["value"] == "hello"
        publish(rest, penstock_topic, "again")
        assert json.loads(socket.recv(20))["value"] == "again"


@pytest.mark.parametrize(
    ("tail", "code"),
    [("none-such/tail", 40401), ("{topic}/tail?offset=soon", 40001), ("{topic}/tail?partition=9", 40402)],
)
def test_unfollowable_tails_are_reported(rest: httpx.Client, penstock_topic: str, tail: str, code: int) -> None:
    path = f"/topics/{tail.format(topic=penstock_topic)}"
    answer = rest.get(path)
    assert answer.json()["error_code"] == code
    url = str(rest.base_url).replace("http", "ws").rstrip("/")
    with connect(f"{url}{path}") as socket:
        assert json.loads(socket.recv(20))["error_code"] == code


def test_disconnecting_releases_the_quota(rest: httpx.Client, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic()
    opened = 0
    deadline = time.monotonic() + 30
    # More tails one after the other than may be open at once; the quota is released a moment after a disconnect.
    while opened < 130:
        with rest.stream("GET", f"/topics/{topic}/tail", params={"offset": "earliest"}) as response:
            if response.status_code == 200:
                opened += 1
                continue
            assert response.status_code == 429
            assert response.headers["retry-after"] == "5"
        assert time.monotonic() < deadline
        time.sleep(0.2)
