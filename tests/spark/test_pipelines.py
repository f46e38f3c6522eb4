"""Running pipelines: decoding, dead letters, duplicates, joins, windows, files, restarts; and the built-in jobs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from penstock.spark import dead_letters
from penstock.testing import Cluster
from support.spark.topics import Entry, numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

import fastavro
from pyspark.sql import SparkSession

from penstock.spark.jobs import archive, audit, read_archive, replay
from penstock.spark.pipelines.build import Builder
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.running import PipelineStatus, run, running
from penstock.spark.pipelines.spec import parse_pipeline
from penstock.spark.pipelines.template import render

SHOP = """\
name: shop
bootstrap: {bootstrap}
sources:
  orders:
    topic: {orders}
    decode: json
    schema: "id BIGINT, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP"
    require: [id IS NOT NULL, amount >= 0]
    watermark: {{column: at, delay: 1 minute}}
  customers:
    topic: {customers}
    decode: json
    schema: "name STRING"
    table: true
steps:
  unique_orders:
    from: orders
    dedup: [id]
  named:
    sql: SELECT o.id, c.name, o.amount, o.at FROM unique_orders o LEFT JOIN customers c ON o.customer = c._key
  doubled:
    from: named
    python: steps.py:double
  revenue:
    sql: SELECT window.start AS minute, sum(amount) AS revenue FROM doubled GROUP BY window(at, '1 minute')
sinks:
  named_topic:
    from: doubled
    topic: {named}
    key: name
  minutes:
    from: revenue
    format: parquet
    path: minutes
"""
STEPS = """
from pyspark.sql import functions as F

def double(frame):
    return frame.withColumn("amount", F.col("amount") * 2)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))


def order(number: int, **fields: Any) -> Entry:
    at = f"2026-11-15T10:{number // 60:02}:{number % 60:02}Z"
    whole = {"id": number, "customer": f"c{number % 3}", "amount": 1.5, "at": at, **fields}
    return Entry(str(number).encode(), json.dumps(whole).encode())


def values(spark: SparkSession, cluster: Cluster, topic: str) -> list[Any]:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("penstock").options(**options).load().orderBy("partition", "offset").collect()


def test_shop_pipeline_end_to_end(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    names = {name: cluster.create_topic(partitions=2) for name in ("orders", "customers", "named")}
    cluster.create_topic(dead_letters.topic_for(names["orders"]))
    people = [Entry(b"c0", b'{"name": "old"}'), Entry(b"c0", b'{"name": "Ann"}'), Entry(b"c1", b'{"name": "Bob"}')]
    write(cluster.bootstrap_servers, names["customers"], [*people, Entry(b"c1", None)])
    bad = [Entry(b"x", b"no json"), order(500, amount=-1), Entry(b"y", None)]
    write(cluster.bootstrap_servers, names["orders"], [*(order(number) for number in range(120)), order(7), *bad])
    (tmp_path / "steps.py").write_text(STEPS)
    text = SHOP.format(bootstrap=cluster.bootstrap_servers, **names)
    pipeline = parse_pipeline(text, "shop.yaml", tmp_path)
    shown: list[PipelineStatus] = []
    during: list[str] = []

    def show(status: PipelineStatus) -> None:
        shown.append(status)
        during.extend(each.name for each in running())

    run(spark, pipeline, once=True, show=show)
    assert "shop" in during
    assert running() == []
    assert {query.name for query in shown[-1].queries} == {
        "shop/sinks/named_topic",
        "shop/sinks/minutes",
        "shop/dead_letters/orders",
    }
    written = [json.loads(row.value) for row in values(spark, cluster, names["named"])]
    assert sorted(each["id"] for each in written) == list(range(120))
    assert {each["amount"] for each in written} == {3.0}
    assert {each.get("name") for each in written if each["id"] % 3 == 0} == {"Ann"}
    assert {each.get("name") for each in written if each["id"] % 3 == 1} == {None}
    letters = values(spark, cluster, dead_letters.topic_for(names["orders"]))
    reasons = {bytes(row.key): bytes(dict(row.headers)[dead_letters.REASON]).decode() for row in letters}
    assert set(reasons) == {b"x", b"500", b"y"}
    assert "does not match the json schema" in reasons[b"x"]
    assert reasons[b"500"] == "amount >= 0 does not hold"
    # The second run resumes where the first stopped, and closes the first minutes.
    write(cluster.bootstrap_servers, names["orders"], [order(number) for number in range(120, 300)])
    run(spark, pipeline, once=True, show=show)
    assert len(values(spark, cluster, names["named"])) == 300
    minutes = {str(row.minute): float(row.revenue) for row in spark.read.parquet(str(tmp_path / "minutes")).collect()}
    assert minutes["2026-11-15 10:00:00"] == 180.0


def test_spark_errors_name_the_step(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic()
    text = f"""\
name: wrong
bootstrap: {cluster.bootstrap_servers}
sources:
  orders: {{topic: {topic}, decode: json, schema: "id BIGINT"}}
steps:
  total:
    sql: SELECT sum(amont) FROM orders
sinks:
  out: {{from: total, topic: {topic}}}
"""
    with pytest.raises(PipelineError, match="amont") as caught:
        Builder(spark, parse_pipeline(text, "wrong.yaml", tmp_path))
    assert caught.value.line == 6
    broken = text.replace("id BIGINT", "id BIGGER").replace("amont", "id")
    with pytest.raises(PipelineError, match="the schema of orders cannot be read") as caught:
        Builder(spark, parse_pipeline(broken, "wrong.yaml", tmp_path))
    assert caught.value.line == 4


AVRO_OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AVRO_NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


@pytest.fixture
def registry() -> Iterator[str]:
    """A registry that has two versions of one schema."""
    answers = {
        "/subjects/orders-value/versions/latest": AVRO_NEW,
        "/schemas/ids/1": AVRO_OLD,
        "/schemas/ids/2": AVRO_NEW,
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"schema": json.dumps(answers[self.path])}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def framed(schema_id: int, schema: Any, record: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), record)
    return b"\0" + schema_id.to_bytes(4, "big") + buffer.getvalue()


def test_avro_of_several_versions_and_csv(spark: SparkSession, cluster: Cluster, tmp_path: Path, registry: str) -> None:
    orders, lines = cluster.create_topic(), cluster.create_topic()
    good = [framed(1, AVRO_OLD, {"id": 1}), framed(2, AVRO_NEW, {"id": 2, "note": "new"})]
    write(cluster.bootstrap_servers, orders, [*(Entry(b"k", value) for value in good), Entry(b"bad", b"\0\0\0\0\x01")])
    write(cluster.bootstrap_servers, lines, [Entry(b"k", b'5,"a, b"'), Entry(b"bad", b"five,x")])
    text = f"""\
name: formats
bootstrap: {cluster.bootstrap_servers}
sources:
  orders: {{topic: {orders}, decode: avro, schema: {{registry: "{registry}", subject: orders-value}}}}
  lines: {{topic: {lines}, decode: csv, schema: "number INT, text STRING"}}
sinks:
  out: {{from: orders, topic: nowhere}}
"""
    pipeline = parse_pipeline(text, "formats.yaml", tmp_path)
    builder = Builder(spark, pipeline, sample=100)
    rows = builder.frames["orders"].select("id", "note").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, None), (2, "new")]
    assert [tuple(row) for row in builder.frames["lines"].select("number", "text").collect()] == [(5, "a, b")]
    for source in pipeline.sources:
        letters = builder.dead_letters(source)
        assert letters is not None
        assert [bytes(row.key) for row in letters.collect()] == [b"bad"]


def test_protobuf(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    from penstock.spark.pipelines.binary_formats import protobuf_message

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="tags", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (tmp_path / "order.desc").write_bytes(descriptors)
    order_class = protobuf_message(descriptors, "shop.Order")
    topic = cluster.create_topic()
    value = order_class(id=9_007_199_254_740_993, tags=["a", "b"]).SerializeToString()
    write(cluster.bootstrap_servers, topic, [Entry(b"k", value), Entry(b"bad", b"\xff\xff")])
    text = f"""\
name: protobuf
bootstrap: {cluster.bootstrap_servers}
sources:
  orders: {{topic: {topic}, decode: protobuf, schema: {{file: order.desc, message: shop.Order}}}}
sinks:
  out: {{from: orders, topic: nowhere}}
"""
    builder = Builder(spark, parse_pipeline(text, "protobuf.yaml", tmp_path), sample=100)
    rows = builder.frames["orders"].select("id", "tags").collect()
    assert [(row.id, list(row.tags)) for row in rows] == [(9_007_199_254_740_993, ["a", "b"])]


def test_archive_replay_and_audit(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topic, again = cluster.create_topic(partitions=3), cluster.create_topic(partitions=3)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    written = write(cluster.bootstrap_servers, topic, [*numbered(300), Entry(b"h", b"v", headers=(("a", b"1"),))])
    place, checkpoint = str(tmp_path / "archive"), str(tmp_path / "checkpoint")
    chosen = {**options, "subscribe": topic}
    assert archive(spark, chosen, place, checkpoint) == 301
    assert archive(spark, chosen, place, checkpoint) == 0
    source = spark.read.format("penstock").options(**chosen).load()
    assert all(each.sound for each in audit(source, read_archive(spark, place)))
    assert replay(spark, place, options, again, keep_partitions=True) == 301
    copied = values(spark, cluster, again)
    assert [(row.partition, bytes(row.key), bytes(row.value)) for row in copied] == [
        (each.partition, each.key, each.value) for each in written
    ]
    # An audit of different records reports differences.
    part = read_archive(spark, place, "partition = 0 AND offset >= 10")
    found = audit(source, part.union(part.filter("offset = 11")))
    lost = {each.partition: (each.missing, each.duplicated, each.sound) for each in found}
    assert lost[0] == (10, 1, False)
    assert lost[1][0] == sum(each.partition == 1 for each in written)


def test_the_template_for_copies_keeps_headers(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    source, target = cluster.create_topic(), cluster.create_topic()
    headers = (("trace", b"abc"), ("empty", b""))
    write(cluster.bootstrap_servers, source, [Entry(b"k", b"v", headers=headers), Entry(None, b"plain")])
    text = render("copy", source, cluster.bootstrap_servers, "copy.yaml", "copy").replace(f"{source}-copy", target)
    run(spark, parse_pipeline(text, "copy.yaml", tmp_path), once=True, show=lambda _: None)
    copied = [(row.key, bytes(row.value), row.headers) for row in values(spark, cluster, target)]
    assert [(key, value) for key, value, _ in copied] == [(bytearray(b"k"), b"v"), (None, b"plain")]
    assert [(name, bytes(value)) for name, value in copied[0][2]] == list(headers)
    assert not copied[1][2]


def test_a_step_file_may_be_called_like_a_module(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    source, target = cluster.create_topic(), cluster.create_topic()
    write(cluster.bootstrap_servers, source, [Entry(b"k", b"v")])
    (tmp_path / "json.py").write_text("def same(frame):\n    return frame.select('key', 'value')\n")
    text = f"""\
name: named
bootstrap: {cluster.bootstrap_servers}
sources:
  lines: {{topic: {source}, start: earliest}}
steps:
  same: {{from: lines, python: "json.py:same"}}
sinks:
  out: {{from: same, topic: {target}, encode: raw}}
"""
    run(spark, parse_pipeline(text, "named.yaml", tmp_path), once=True, show=lambda _: None)
    assert len(values(spark, cluster, target)) == 1
    assert json.loads("[1]") == [1]
    assert hasattr(sys.modules["json"], "loads")
