"""`python -m bench.spark`: the format `penstock` next to Spark's own Kafka connector, on the same topic, in one run.

Everything is read into Spark's `noop` sink. The figure that counts is rows a second of CPU that Spark and its Python
workers spend, for they share the cores with the broker and with whatever else runs. The runs of the two take turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.spark.connector import connector_jars
from tests.support.wire_client import WireClient

from bench.processes import cpu_seconds
from bench.spark_figures import FORMS, RAW, section
from penstock.spark import session
from penstock.testing import Cluster
from penstock.wire.records import Compression, Record, build_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
BATCH_BYTES = 500_000
REPETITIONS = 4
WARM_UP = 2
SIZES = {"100 B": (100, 3_000_000), "1 KB": (1000, 600_000)}


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


def read(spark: SparkSession, form: str, cluster: Cluster, topic: str) -> dict[str, float]:
    """Read a whole topic; the time that took, and the processors' time of Java and its Python workers."""
    began, spent = time.perf_counter(), spark_cpu_seconds(cluster)
    reader = spark.read.format(form).option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    reader.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - began, "cpu_seconds": spark_cpu_seconds(cluster) - spent}


def spark_cpu_seconds(cluster: Cluster) -> float:
    """What the processes below this one have used, without the broker's."""
    assert cluster.pid is not None
    return cpu_seconds(os.getpid()) - time.process_time() - cpu_seconds(cluster.pid)


def measure(spark: SparkSession, forms: tuple[str, ...], quick: bool) -> list[dict[str, Any]]:
    """Every run that counts."""
    runs: list[dict[str, Any]] = []
    repetitions = 1 if quick else REPETITIONS
    with Cluster() as cluster:
        for label, (size_bytes, count) in SIZES.items():
            for codec in (Compression.NONE, Compression.LZ4):
                name = f"{label}, {codec.name.lower()}"
                topic = cluster.create_topic(partitions=PARTITIONS)
                rows = fill(cluster, topic, size_bytes, count // (10 if quick else 1), codec)
                for turn in range(WARM_UP + repetitions):
                    for form in forms:
                        run = read(spark, form, cluster, topic)
                        if turn < WARM_UP:
                            continue
                        runs.append({"workload": name, "form": form, "rows": rows, **run})
                        print(f"{name:>14} {form:>9}: {rows / run['seconds']:>12,.0f} rows/s, "
                              f"{rows / run['cpu_seconds']:>12,.0f} a CPU second", flush=True)  # fmt: skip
    return runs


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one turn; nothing is stored")
    parser.add_argument("--output", type=Path, default=RAW, help="where the raw figures go")
    options = parser.parse_args(arguments)
    found = connector_jars()
    connector, jars = found if isinstance(found, tuple) else (found, ())
    forms = FORMS if jars else FORMS[:1]
    settings = {"spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    before = os.getloadavg()[0]
    spark = session("bench", settings=settings)
    try:
        runs = measure(spark, forms, options.quick)
        version = spark.version
    finally:
        spark.stop()
    raw = {"spark": version, "connector": connector, "cores": len(os.sched_getaffinity(0)), "runs": runs}
    raw |= {"repetitions": 1 if options.quick else REPETITIONS, "warm_up": WARM_UP}
    raw |= {"load_before": before, "load_after": os.getloadavg()[0], "date": datetime.date.today().isoformat()}
    if not options.quick:
        options.output.write_text(json.dumps(raw, indent=1) + "\n")
    print(section(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
