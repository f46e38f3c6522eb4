"""`python -m bench.spark`: the format `penstock` next to Spark's own Kafka connector, on the same topic, in one run.

Everything is read into Spark's `noop` sink. The figure that counts is records per second of CPU that Spark and its
Python workers spend: both share the cores with the broker. The runs of the two take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.support.spark_connector import connector_jars
from tests.support.wire_client import WireClient

from bench.processes import cpu_seconds
from penstock.spark import session
from penstock.testing import Cluster
from penstock.wire.records import Compression, Record, build_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
BATCH_BYTES = 500_000
REPETITIONS = 2
SIZES = {"100 B": (100, 3_000_000), "1 KB": (1000, 600_000)}


class Run(NamedTuple):
    """One read of a whole topic."""

    rows_per_second: float
    rows_per_cpu_second: float


def fill(cluster: Cluster, topic: str, size_bytes: int, count: int, codec: Compression) -> int:
    """Write `count` records of a size, whole batches at a time; returns how many there are."""
    per_batch = BATCH_BYTES // size_bytes
    now = int(time.time() * 1000)
    records = [Record(index, now, b"%08d" % index, value(size_bytes - 8)) for index in range(per_batch)]
    batch = build_batch(records, compression=codec)
    batches = count // per_batch
    with WireClient(cluster.bootstrap_servers.partition(",")[0]) as client:
        for number in range(batches):
            assert client.produce(topic, batch, partition=number % PARTITIONS, acks=1).error_code == 0
    return batches * per_batch


def value(size_bytes: int) -> bytes:
    """Text that compresses to about a third, as JSON does."""
    return os.urandom(size_bytes // 6).hex().encode().ljust(size_bytes, b".")


def read(spark: SparkSession, form: str, bootstrap: str, topic: str, rows: int, pid: int) -> Run:
    began, spent = time.perf_counter(), cpu_seconds(pid)
    frame = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    frame.write.format("noop").mode("overwrite").save()
    seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - spent
    return Run(rows / seconds, rows / cpu)


def measure(quick: bool) -> dict[str, dict[str, Run]]:
    """The median run of each format for each size of record."""
    found = connector_jars()
    jars = found[1] if isinstance(found, tuple) else ()
    forms = ("penstock", "kafka") if jars else ("penstock",)
    print(f"Spark's own connector: {found[0] if isinstance(found, tuple) else found}", flush=True)
    settings = {"spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    results: dict[str, dict[str, Run]] = {}
    with Cluster() as cluster:
        spark = session("bench", settings=settings)
        pid = os.getpid()
        for label, (size_bytes, count) in SIZES.items():
            for codec in (Compression.NONE, Compression.LZ4):
                name = f"{label}, {codec.name.lower()}"
                topic = cluster.create_topic(partitions=PARTITIONS)
                rows = fill(cluster, topic, size_bytes, count // (10 if quick else 1), codec)
                runs: dict[str, list[Run]] = {form: [] for form in forms}
                for turn in range((1 if quick else REPETITIONS) + 1):
                    for form in forms:
                        run = read(spark, form, cluster.bootstrap_servers, topic, rows, pid)
                        # The first turn warms Java up.
                        if turn:
                            runs[form].append(run)
                            print(f"{name:>14} {form:>9}: {run.rows_per_second:>12,.0f} rows/s, "
                                  f"{run.rows_per_cpu_second:>12,.0f} a CPU second", flush=True)  # fmt: skip
                results[name] = {
                    form: Run(*map(statistics.median, zip(*each, strict=True))) for form, each in runs.items()
                }
        spark.stop()
    return results


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one turn")
    options = parser.parse_args(arguments)
    results = measure(options.quick)
    print(json.dumps({name: {form: run._asdict() for form, run in each.items()} for name, each in results.items()}))
    for name, each in results.items():
        if "kafka" in each:
            ours, theirs = each["penstock"], each["kafka"]
            print(f"{name}: {ours.rows_per_second / theirs.rows_per_second:.2f} x the rows a second, "
                  f"{ours.rows_per_cpu_second / theirs.rows_per_cpu_second:.2f} x a CPU second")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
