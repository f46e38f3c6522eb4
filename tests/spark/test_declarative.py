"""The example of a Spark Declarative Pipeline, run by `spark-pipelines` as a reader of the docs would, twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.spark.topics import Entry, write
from support.tools import REPOSITORY

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

import pyarrow.parquet

from penstock.spark.java import java_home

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("grpc_status") is None, reason="Spark Connect: install pyspark[pipelines]"),
]

EXAMPLE = REPOSITORY / "examples" / "declarative"
RUN_SECONDS = 300


def order(number: int) -> Entry:
    fields = {"id": number, "customer": f"c{number % 2}", "amount": 1.5, "at": "2026-11-15T10:00:00Z"}
    return Entry(str(number).encode(), json.dumps(fields).encode())


def run(directory: Path, bootstrap: str, topic: str) -> None:
    # The command and the module that Spark discovers the format by are those of this environment and checkout.
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "PENSTOCK_TOPIC": topic,
    }
    command = ["spark-pipelines", "run", "--conf", "spark.sql.catalogImplementation=hive"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Run is COMPLETED" in done.stdout


@pytest.mark.timeout(2 * RUN_SECONDS + 60)
def test_example_processes_every_order_once(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic(partitions=2)
    directory = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, directory)
    file = directory / "spark-pipeline.yml"
    file.write_text(file.read_text().replace("file:///tmp/penstock-declarative", f"file://{tmp_path}/storage"))
    write(cluster.bootstrap_servers, topic, [*map(order, range(20)), Entry(b"x", b"no json")])
    run(directory, cluster.bootstrap_servers, topic)
    write(cluster.bootstrap_servers, topic, list(map(order, range(20, 30))))
    run(directory, cluster.bootstrap_servers, topic)
    tables = directory / "spark-warehouse"
    assert sorted(pyarrow.parquet.read_table(tables / "orders")["id"].to_pylist()) == list(range(30))
    revenue = pyarrow.parquet.read_table(tables / "revenue_by_customer").to_pylist()
    assert {row["customer"]: row["revenue"] for row in revenue} == {"c0": Decimal("22.50"), "c1": Decimal("22.50")}
