"""The ready pipelines that connect topics with databases, files and object storage: each against the real thing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Cluster
from support.spark.object_store import ACCESS, object_store, object_store_missing
from support.spark.postgres import Postgres, postgres, postgres_missing
from support.spark.topics import Entry, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

import pyarrow
import pyarrow.parquet
from examples.demo.reading import read_topic

from penstock.spark import dead_letters
from penstock.spark.pipelines.template import render
from support.spark.connector_jars import connector_library_jars
from support.spark.pipeline_runner import PipelineRunner

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

BUCKET = "shop"
NOON = datetime(2026, 11, 14, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    reason = postgres_missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, Any]]:
    reason = object_store_missing()
    if reason is not None:
        pytest.skip(reason)
    with object_store(BUCKET) as found:
        yield found


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[PipelineRunner]:
    """One Spark for all tests here; it must know where the object store is when it starts, if there is one."""
    jars = connector_library_jars()
    if isinstance(jars, str):
        pytest.skip(jars)
    directory = tmp_path_factory.mktemp("runner")
    environment = {"SHOP_PASSWORD": "any", "S3_BUCKET": BUCKET, "PENSTOCK_STATE": str(directory / "state"), **ACCESS}
    if object_store_missing() is None:
        environment["S3_ENDPOINT"], _ = request.getfixturevalue("bucket")
    runner = PipelineRunner(directory, jars, environment)
    yield runner
    runner.close()


def ready(template: str, directory: Path, topic: str, changes: Mapping[str, str] | None = None) -> Path:
    """A template as `penstock pipeline init` writes it, with a few words changed."""
    file = directory / f"{template}.yaml"
    text = render(template, topic, "localhost:9092", str(file), template)
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, "utf-8")
    return file


def order(number: int, **fields: Any) -> dict[str, Any]:
    at = (NOON + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"id": number, "customer": f"c{number % 3}", "amount": number + 0.25, "at": at, **fields}


def entry(fields: Mapping[str, Any]) -> Entry:
    return Entry(str(fields["id"]).encode(), json.dumps(fields).encode())


def values(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    found = (json.loads(message.value()) for message in read_topic(cluster.bootstrap_servers, topic))
    return sorted(found, key=lambda each: int(each["id"]))


def of_database(database: Postgres, table: str) -> dict[str, str]:
    return {
        "jdbc:postgresql://localhost:5432/shop": database.url,
        "dbtable: orders": f"dbtable: {table}",
        "user: shop": "user: postgres",
    }


def test_jdbc_source_reads_new_rows(
    database: Postgres, runner: PipelineRunner, cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic(partitions=2)
    database.sql("CREATE TABLE rows (id BIGINT PRIMARY KEY, customer TEXT, amount NUMERIC(12, 2), at TIMESTAMPTZ)")
    more = "INSERT INTO rows SELECT n, 'c' || n, n + 0.25, '2026-11-14T12:00:00Z' FROM generate_series({}, {}) n"
    database.sql(more.format(1, 60))
    file = ready(
        "jdbc-in", tmp_path, topic, {**of_database(database, "rows"), "settle: 5 seconds": "settle: 0 seconds"}
    )
    runner.run(file, cluster.bootstrap_servers)
    assert [each["id"] for each in values(cluster, topic)] == list(range(1, 61))
    database.sql(more.format(61, 100))
    runner.run(file, cluster.bootstrap_servers, crash="before rows appear")
    runner.run(file, cluster.bootstrap_servers)
    found = values(cluster, topic)
    assert [each["id"] for each in found] == list(range(1, 101))
    assert (found[99]["customer"], found[99]["amount"]) == ("c100", 100.25)


def test_jdbc_sink_replaces_older_rows_by_newer_ones(
    database: Postgres, runner: PipelineRunner, cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic(partitions=1)
    cluster.create_topic(dead_letters.topic_for(topic))
    database.sql('CREATE TABLE sales (id BIGINT PRIMARY KEY, customer TEXT, amount NUMERIC(12, 2), "at" TIMESTAMPTZ)')
    write(cluster.bootstrap_servers, topic, [*(entry(order(number)) for number in range(5)), Entry(b"x", b"no json")])
    file = ready("jdbc-out", tmp_path, topic, of_database(database, "sales"))
    runner.run(file, cluster.bootstrap_servers)
    later = (NOON + timedelta(days=1)).isoformat()
    changed = [order(1, amount=9, at=later), order(1, amount=8), order(5)]
    write(cluster.bootstrap_servers, topic, [entry(fields) for fields in changed])
    runner.run(file, cluster.bootstrap_servers)
    rows = database.sql("SELECT id, amount FROM sales ORDER BY id")
    assert rows == [("0", "0.25"), ("1", "9.00"), ("2", "2.25"), ("3", "3.25"), ("4", "4.25"), ("5", "5.25")]
    assert database.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'penstock_batch\\_%'") == [("0",)]


@pytest.mark.parametrize(
    ("crash", "expected"),
    [("after rows are committed", 20), ("after rows are committed, and forget that", 40)],
    ids=["kept", "forgotten"],
)
def test_jdbc_sink_inserts_a_repeated_batch_once(
    database: Postgres, runner: PipelineRunner, cluster: Cluster, tmp_path: Path, crash: str, expected: int
) -> None:
    """With the batch's number forgotten, rows are there twice: the number is what prevents it."""
    topic = cluster.create_topic(partitions=1)
    cluster.create_topic(dead_letters.topic_for(topic))
    write(cluster.bootstrap_servers, topic, [entry(order(number)) for number in range(20)])
    table = f"inserted_{expected}"
    text = ready("jdbc-out", tmp_path, topic, of_database(database, table)).read_text()
    lines = [line for line in text.splitlines() if not line.strip().startswith(("upsert:", "newest:"))]
    file = tmp_path / "jdbc-out.yaml"
    file.write_text("\n".join(lines))
    runner.run(file, cluster.bootstrap_servers, crash=crash)
    assert database.sql(f"SELECT count(*) FROM {table}") == [("20",)]
    runner.run(file, cluster.bootstrap_servers)
    assert database.sql(f"SELECT count(*) FROM {table}") == [(str(expected),)]


def test_json_files_are_read_into_a_topic(runner: PipelineRunner, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(partitions=2)
    letters = cluster.create_topic(f"dlq.lines-{topic}")
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    lines = [json.dumps(order(number)) for number in range(30)]
    (incoming / "first.json").write_text("\n".join([*lines[:20], "{broken"]) + "\n")
    require = "require: [id IS NOT NULL]"
    file = ready("files-in", tmp_path, topic, {require: f"{require}\n    dead_letters: {letters}"})
    runner.run(file, cluster.bootstrap_servers)
    (incoming / "second.json").write_text("\n".join(lines[20:]) + "\n")
    runner.run(file, cluster.bootstrap_servers)
    runner.run(file, cluster.bootstrap_servers)
    assert [each["id"] for each in values(cluster, topic)] == list(range(30))
    (letter,) = read_topic(cluster.bootstrap_servers, letters)
    notes = {name: value.decode() for name, value in letter.headers() if value is not None}
    assert letter.value() == b"{broken"
    assert notes[dead_letters.TOPIC].endswith("first.json")
    assert "does not match the json schema" in notes[dead_letters.REASON]


def test_csv_and_parquet_files_are_read_into_a_topic(runner: PipelineRunner, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(partitions=1)
    letters = cluster.create_topic(f"dlq.csv-{topic}")
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text('id,customer\n1,"Ann, and\nBob"\nfive,Eve\n')
    (tmp_path / "incoming" / "b").mkdir()
    pyarrow.parquet.write_table(
        pyarrow.table({"id": pyarrow.array([2], pyarrow.int64()), "customer": ["Cy"]}),
        tmp_path / "incoming" / "b" / "b.parquet",
    )
    (tmp_path / "countries.json").write_text('{"id": 2, "country": "Cyprus"}\n{broken\n')
    file = tmp_path / "mixed.yaml"
    file.write_text(f"""\
name: mixed
sources:
  lines:
    format: csv
    path: incoming/*.csv
    schema: "id BIGINT, customer STRING"
    options: {{header: true, multiLine: true}}
    dead_letters: {letters}
  tables: {{format: parquet, path: incoming/b}}
  countries: {{format: json, path: countries.json, schema: "id BIGINT, country STRING", table: true}}
steps:
  all_of_them: {{sql: "SELECT id, customer FROM lines UNION ALL SELECT id, customer FROM tables"}}
  at_home: {{sql: "SELECT a.id, customer, country FROM all_of_them a LEFT JOIN countries c ON a.id = c.id"}}
sinks:
  out: {{from: at_home, topic: {topic}, key: id}}
""")
    runner.run(file, cluster.bootstrap_servers)
    found = [(each["id"], each["customer"], each.get("country")) for each in values(cluster, topic)]
    assert found == [(1, "Ann, and\nBob", None), (2, "Cy", "Cyprus")]
    (letter,) = read_topic(cluster.bootstrap_servers, letters)
    assert b"five,Eve" in letter.value()


def test_topic_is_written_to_files(runner: PipelineRunner, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(partitions=2)
    cluster.create_topic(dead_letters.topic_for(topic))
    file = ready("files-out", tmp_path, topic)
    for start in (0, 400):
        entries = [entry(order(number)) for number in range(start, start + 400)]
        write(cluster.bootstrap_servers, topic, entries)
        runner.run(file, cluster.bootstrap_servers)
    place = tmp_path / "orders-by-day"
    rows = pyarrow.parquet.read_table(place).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(800))
    assert {path.parent.name for path in place.rglob("*.parquet")} == {"day=2026-11-14", "day=2026-11-15"}


def test_topic_is_written_to_s3(
    bucket: tuple[str, Any], runner: PipelineRunner, cluster: Cluster, tmp_path: Path
) -> None:
    _, client = bucket
    topic = cluster.create_topic(partitions=2)
    cluster.create_topic(dead_letters.topic_for(topic))
    file = ready("s3-out", tmp_path, topic)
    for start in (0, 100):
        write(cluster.bootstrap_servers, topic, [entry(order(number)) for number in range(start, start + 100)])
        runner.run(file, cluster.bootstrap_servers)
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=BUCKET, Prefix="orders/")["Contents"]]
    parts = [key for key in keys if key.endswith(".parquet")]
    rows = [row for key in parts for row in objects(client, key)]
    assert sorted(row["id"] for row in rows) == list(range(200))
    assert all("/day=2026-11-14/" in key for key in parts)
    assert any("_spark_metadata" in key for key in keys)


def test_s3_files_are_read_into_a_topic(
    bucket: tuple[str, Any], runner: PipelineRunner, cluster: Cluster, tmp_path: Path
) -> None:
    _, client = bucket
    topic = cluster.create_topic(partitions=2)
    letters = cluster.create_topic(f"dlq.objects-{topic}")
    require = "require: [id IS NOT NULL]"
    file = ready("s3-in", tmp_path, topic, {require: f"{require}\n    dead_letters: {letters}"})
    for name, numbers in {"a": range(50), "b": range(50, 80)}.items():
        put(client, f"incoming/{name}.parquet", [order(number) for number in numbers] + [order(0, id=None)])
        runner.run(file, cluster.bootstrap_servers)
    assert [each["id"] for each in values(cluster, topic)] == list(range(80))
    reasons = [dict(letter.headers())[dead_letters.REASON] for letter in read_topic(cluster.bootstrap_servers, letters)]
    assert reasons == [b"id IS NOT NULL does not hold"] * 2


def objects(client: Any, key: str) -> list[dict[str, Any]]:
    body = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(body)).to_pylist()
    return rows


def put(client: Any, key: str, orders: list[dict[str, Any]]) -> None:
    columns = {
        "id": pyarrow.array([each["id"] for each in orders], pyarrow.int64()),
        "customer": [each["customer"] for each in orders],
        "amount": pyarrow.array([Decimal(str(each["amount"])) for each in orders], pyarrow.decimal128(12, 2)),
        "at": pyarrow.array([datetime.fromisoformat(each["at"]) for each in orders], pyarrow.timestamp("us", tz="UTC")),
    }
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    client.put_object(Bucket=BUCKET, Key=key, Body=buffer.getvalue())
