"""A running pipeline survives schema changes, broker restarts and its own restart; and joins streams."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from penstock.spark import dead_letters
from penstock.testing import Cluster
from support.processes import eventually
from support.spark.topics import Entry, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

import fastavro
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from penstock.spark.pipelines.running import run
from penstock.spark.pipelines.spec import parse_pipeline

WAIT_SECONDS = 120.0
GIFT = {"name": "gift", "type": "boolean", "default": False}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))


class Schemas:
    """A registry to which a test adds schemas; the newest is the subject's latest."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        schemas = self.known

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number = len(schemas) if self.path.startswith("/subjects") else int(self.path.rpartition("/")[2])
                body = json.dumps({"schema": json.dumps(schemas[number - 1])}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, *fields: dict[str, Any]) -> int:
        """A version of the schema; returns its id."""
        self.known.append({"type": "record", "name": "Order", "fields": list(fields)})
        return len(self.known)

    def framed(self, number: int, record: Any) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(self.known[number - 1]), record)
        return b"\0" + number.to_bytes(4, "big") + buffer.getvalue()


@pytest.fixture
def registry() -> Iterator[Schemas]:
    schemas = Schemas()
    yield schemas
    schemas.close()


def while_at_work(spark: SparkSession, text: str, directory: Path, act: Callable[[], object]) -> None:
    """Run a pipeline until `act`, in a thread of its own, is done."""
    ended = Event()
    problems: list[BaseException] = []

    def acting() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001
            problems.append(error)
        finally:
            ended.set()

    thread = Thread(target=acting)
    thread.start()
    try:
        pipeline = parse_pipeline(text, "survivor.yaml", directory)
        run(spark, pipeline, once=False, show=lambda _: None, wanted=lambda: not ended.is_set())
    finally:
        thread.join()
    assert problems == []


class Reader:
    """The committed values of a topic's only partition, as they come."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 0}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.values: list[Any] = []

    def wait_for(self, count: int) -> list[Any]:
        def enough() -> bool:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.values.append(json.loads(message.value()))
            return len(self.values) >= count

        assert eventually(enough, WAIT_SECONDS, 0), f"there are only {len(self.values)} of {count}"
        return self.values


AVRO = """\
name: survivor
bootstrap: {bootstrap}
sources:
  orders:
    topic: {topic}
    decode: avro
    schema: {{registry: "{registry}", subject: orders-value}}
sinks:
  out: {{from: orders, topic: {target}, key: id, delivery: exactly-once}}
"""


def test_pipeline_survives_schema_changes_and_restarts(spark: SparkSession, tmp_path: Path, registry: Schemas) -> None:
    number = {"name": "id", "type": "long"}
    note = {"name": "note", "type": ["null", "string"], "default": None}
    first = registry.add(number, note)
    with Cluster() as cluster:
        topic, target = cluster.create_topic(), cluster.create_topic()
        cluster.create_topic(dead_letters.topic_for(topic))
        names = {"bootstrap": cluster.bootstrap_servers, "topic": topic, "target": target}
        text = AVRO.format(registry=registry.address, **names)

        def send(version: int, *records: dict[str, Any]) -> None:
            write(cluster.bootstrap_servers, topic, [Entry(b"k", registry.framed(version, each)) for each in records])

        reader = Reader(cluster, target)

        def change_schemas_and_restart_the_broker() -> None:
            send(first, {"id": 1, "note": "first"})
            assert reader.wait_for(1)[0]["note"] == "first"
            # A field more and a field less, both compatible, while it runs.
            more = registry.add(number, note, GIFT)
            less = registry.add(number)
            send(more, {"id": 2, "note": "second", "gift": True})
            send(less, {"id": 3})
            assert [each.get("note") for each in reader.wait_for(3)] == ["first", "second", None]
            # A record that is none, in between, and a broker that is gone for a moment.
            write(cluster.bootstrap_servers, topic, [Entry(b"bad", b"none at all")])
            cluster.kill()
            cluster.start()
            send(first, {"id": 4, "note": None})
            reader.wait_for(4)

        while_at_work(spark, text, tmp_path, change_schemas_and_restart_the_broker)
        # Its own restart: it resumes from its checkpoint, now with the newest schema's columns.
        newest = registry.add(number, note, GIFT)
        send(first, {"id": 5, "note": "while away"})
        send(newest, {"id": 6, "note": "back", "gift": True})
        while_at_work(spark, text, tmp_path, lambda: reader.wait_for(6))
        assert [each["id"] for each in reader.values] == [1, 2, 3, 4, 5, 6]
        assert [each.get("gift") for each in reader.values[4:]] == [False, True]


JOIN = """\
name: joined
bootstrap: {bootstrap}
sources:
  orders:
    topic: {orders}
    decode: json
    schema: "id INT, at TIMESTAMP"
    watermark: {{column: at, delay: 10 seconds}}
  payments:
    topic: {payments}
    decode: json
    schema: "order_id INT, amount INT, paid TIMESTAMP"
    watermark: {{column: paid, delay: 10 seconds}}
steps:
  paid_orders:
    sql: |
      SELECT o.id, p.amount FROM orders o JOIN payments p
      ON o.id = p.order_id AND p.paid BETWEEN o.at AND o.at + INTERVAL 1 MINUTE
sinks:
  out: {{from: paid_orders, topic: {target}, key: id}}
"""


def test_streams_are_joined_over_micro_batches(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    names = {name: cluster.create_topic() for name in ("orders", "payments", "target")}
    pipeline = parse_pipeline(JOIN.format(bootstrap=cluster.bootstrap_servers, **names), "joined.yaml", tmp_path)

    def at(second: int) -> str:
        return f"2026-11-15T10:00:{second:02}Z"

    def send(topic: str, *values: dict[str, Any]) -> None:
        entries = [Entry(b"k", json.dumps(value).encode()) for value in values]
        write(cluster.bootstrap_servers, names[topic], entries)

    send("orders", {"id": 1, "at": at(1)}, {"id": 2, "at": at(2)}, {"id": 3, "at": at(30)})
    send("payments", {"order_id": 1, "amount": 10, "paid": at(5)})
    run(spark, pipeline, once=True, show=lambda _: None)
    # The order waits in the state for its payment; one that is before its order is none.
    send("payments", {"order_id": 2, "amount": 20, "paid": at(20)}, {"order_id": 3, "amount": 30, "paid": at(29)})
    run(spark, pipeline, once=True, show=lambda _: None)
    reader = Reader(cluster, names["target"])
    found = sorted(reader.wait_for(2), key=lambda each: each["id"])
    assert found == [{"id": 1, "amount": 10}, {"id": 2, "amount": 20}]
