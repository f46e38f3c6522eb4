"""The examples of docs/delivery.md do what the page describes."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from penstock.testing import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shipments(servers: str, count: int) -> list[bytes]:
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe(["shipments"])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in reader.consume(500, 1.0) if message.error() is None]
    reader.close()
    return found


def test_the_examples_run_and_lose_or_repeat_nothing_where_nothing_fails() -> None:
    at_most_once, at_least_once, exactly_once = BLOCK.findall(PAGE.read_text())
    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("shipments", partitions=2)
        worlds: list[dict[str, Any]] = []
        for block in (at_most_once, at_least_once, exactly_once):
            assert "localhost:9092" in block
            worlds.append({})
            exec(block.replace("localhost:9092", cluster.bootstrap_servers), worlds[-1])
        assert sorted(worlds[0]["processed"]) == sorted(b"sample %d" % number for number in range(100))
        assert worlds[1]["rows"] == {b"%d" % number: b"order %d" % number for number in range(100)}
        expected = [b"shipped: %s %d" % (kind, number) for kind in (b"sample", b"order") for number in range(100)]
        assert sorted(shipments(cluster.bootstrap_servers, len(expected))) == sorted(expected)
