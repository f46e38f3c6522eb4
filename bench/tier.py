"""`python -m bench.tier`: old records from object storage, to a consumer through a broker and to Spark past it.

A consumer (librdkafka) reads a topic that is only in the store, next to a reader of the same objects with obstore: what
the broker lets through of what the store itself gives. The store is a directory, and S3 as moto serves it from a
process of its own. The broker's cache is empty each time, and the two take turns. A directory whose files are in
memory is no store that a broker could keep up with; it shows what the broker's own part costs.

Spark reads another such topic from the store and through the broker, by turns. Counted is the processors' time of Spark
and of the broker together; meanwhile somebody writes a record at a time, and waits for each. The broker and the writer
have a core of their own, and Spark has the others, as if each had a machine of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import Producer
from tests.support.kafka_broker import free_port
from tests.support.tier_cluster import eventually
from tests.support.wire_client import WireClient

from bench.build import build
from bench.peers.base import run_load
from bench.processes import cpu_seconds
from bench.spark import spark_cpu_seconds, value
from bench.tier_figures import PHASES, RAW, STORES, section
from penstock.testing import Cluster
from penstock.wire.records import Compression, Record, build_batch

MEGABYTE = 1_000_000
SEGMENT_BYTES = 32 * 1024 * 1024
READ_BYTES = 8 * 1024 * 1024
BATCH_BYTES = 200_000
RECORD_BYTES = 1000
REPETITIONS = 5
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
SPARK_PARTITIONS = 2
ACCESS = {"access_key_id": "bench", "secret_access_key": "bench", "region": "us-east-1", "allow_http": "true"}


@contextmanager
def store(kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A store of a kind: its URL and options."""
    if kind == "directory":
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            yield f"file://{directory}", {}
        return
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        options = {**ACCESS, "endpoint": f"http://127.0.0.1:{port}"}
        eventually(lambda: create_bucket(options["endpoint"]), 60)
        yield "s3://bench/here", options
    finally:
        server.kill()
        server.wait()


def create_bucket(endpoint: str) -> bool:
    """Whether there is one now."""
    import boto3
    from botocore.exceptions import BotoCoreError

    keys = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)
    try:
        client.create_bucket(Bucket="bench")
    except BotoCoreError:
        return False
    finally:
        client.close()
    return True


def settings(url: str, options: dict[str, str]) -> dict[str, str]:
    """A broker's; how it reads the store is left as it is by default."""
    return {
        "remote.log.storage.system.enable": "true",
        "penstock.tier.url": url,
        "penstock.tier.options": ",".join(f"{name}={text}" for name, text in options.items()),
        "remote.log.manager.task.interval.ms": "1000",
        "log.retention.check.interval.ms": "2000",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    }


def tiered_topic(cluster: Cluster, partitions: int, megabytes: int) -> tuple[str, int]:
    """A topic with so much in each partition, all but the last segment in the store alone; and its records' count."""
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        "file.delete.delay.ms": "100",
    }
    topic = cluster.create_topic(partitions=partitions, configs=configs)
    now = int(time.time() * 1000)
    per_batch = BATCH_BYTES // RECORD_BYTES
    records = [Record(index, now, b"%08d" % index, value(RECORD_BYTES - 8)) for index in range(per_batch)]
    batch = build_batch(records, compression=Compression.NONE)
    count = megabytes * MEGABYTE // len(batch)
    with WireClient(cluster.bootstrap_servers) as wire:
        for number in range(count * partitions):
            assert wire.produce(topic, batch, partition=number % partitions).error_code == 0

        def is_moved(partition: int) -> bool:
            copied = wire.list_offset(topic, LATEST_TIERED, partition=partition).offset
            local = wire.list_offset(topic, EARLIEST_LOCAL, partition=partition).offset
            return bool(local == copied + 1 and (count * per_batch - local) * RECORD_BYTES < SEGMENT_BYTES)

        for partition in range(partitions):
            eventually(lambda partition=partition: is_moved(partition), 300)  # type: ignore[misc]
    return topic, count * partitions * per_batch


def copied_end(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """The offset after the last one in the store."""
    with WireClient(cluster.bootstrap_servers) as wire:
        return int(wire.list_offset(topic, LATEST_TIERED, partition=partition).offset) + 1


def consume(program: Path, cluster: Cluster, topic: str, count: int) -> float:
    """Bytes of values a second that librdkafka gets, of so many records from the first one on."""
    given = [f"brokers={cluster.bootstrap_servers}", f"topic={topic}", "partitions=1", f"count={count}"]
    outcome = run_load([str(program), "consume", *given])
    return float(outcome["bytes"] / outcome["seconds"])


def read_objects(url: str, options: dict[str, str]) -> float:
    """Bytes a second of all segments, one after the other, as a single reader gets them from the store."""
    import obstore
    from obstore.store import LocalStore, from_url

    if url.startswith("file://"):
        remote: Any = LocalStore(url.removeprefix("file://"))
    else:
        given: Any = {name: text for name, text in options.items() if name != "allow_http"}
        remote = from_url(url, config=given, client_options={"allow_http": True})
    logs = sorted(
        (one["path"], one["size"]) for part in obstore.list(remote) for one in part if one["path"].endswith(".log")
    )
    size = 0
    began = time.perf_counter()
    for path, length in logs:
        for start in range(0, length, READ_BYTES):
            size += len(obstore.get_range(remote, path, start=start, length=min(READ_BYTES, length - start)))
    return size / (time.perf_counter() - began)


def measure_consumers(megabytes: int, repetitions: int) -> list[dict[str, Any]]:
    """The consumer and the store itself, by turns."""
    runs = []
    program = build().load
    for kind in STORES:
        with store(kind) as (url, options), Cluster(settings(url, options)) as cluster:
            topic, _ = tiered_topic(cluster, 1, megabytes)
            end = copied_end(cluster, topic)
            for _ in range(repetitions):
                # The cache is emptied when the broker starts, and then it has to learn what is in the store.
                cluster.restart()
                eventually(lambda: copied_end(cluster, topic) == end, 60)  # noqa: B023
                assert cluster.pid is not None
                spent = cpu_seconds(cluster.pid)
                run = {
                    "store": kind,
                    "consumer": consume(program, cluster, topic, end),
                    "alone": read_objects(url, options),
                }
                run["broker_cpu_seconds"] = cpu_seconds(cluster.pid) - spent
                runs.append(run)
                print(f"{kind:>10}: {run['consumer'] / MEGABYTE:8.0f} MB/s to a consumer, "
                      f"{run['alone'] / MEGABYTE:8.0f} MB/s of the store itself, "
                      f"{run['consumer'] / run['alone']:.2f}x, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    return runs


def write_slowly(servers: str, topic: str, pipe: Connection) -> None:
    """Write a record at a time; for each name that comes, tell how long those since the last one took, in ms."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})
    took: list[float] = []
    while True:
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        producer.flush(60)
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.005)
        if pipe.poll():
            if pipe.recv() is None:
                return
            pipe.send(took)
            took = []


@contextmanager
def writer(servers: str, topic: str) -> Iterator[Connection]:
    """Somebody who writes until the end."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=write_slowly, args=(servers, topic, there))
    process.start()
    try:
        yield here
    finally:
        here.send(None)
        process.join(70)
        if process.is_alive():
            process.kill()


def ask(pipe: Connection) -> list[float]:
    """What writes took since the last time."""
    pipe.send("since")
    found: list[float] = pipe.recv()
    return found


def measure_spark(megabytes: int, repetitions: int) -> list[dict[str, Any]]:
    """Spark past and through the broker, by turns, and the broker's answers to somebody else meanwhile."""
    from penstock.spark import session

    runs: list[dict[str, Any]] = []
    with store("directory") as (url, options), Cluster(settings(url, options)) as cluster:
        topic, _ = tiered_topic(cluster, SPARK_PARTITIONS, megabytes)
        ends = {str(number): copied_end(cluster, topic, number) for number in range(SPARK_PARTITIONS)}
        other = cluster.create_topic()
        with writer(cluster.bootstrap_servers, other) as pipe:
            separate(cluster)
            spark = session("bench", settings={"spark.ui.enabled": "false", "spark.driver.memory": "2g"})
            try:
                for turn in range(1 + repetitions):
                    for phase in PHASES:
                        run = spark_phase(spark, cluster, pipe, phase, topic, ends, url)
                        if turn:
                            runs.append(run)
                            print(told(run), flush=True)
            finally:
                spark.stop()
    return runs


def separate(cluster: Cluster) -> None:
    """Leave one core to the broker and to whoever runs already; this process and what it starts get the others."""
    cores = sorted(os.sched_getaffinity(0))
    here = os.getpid()
    for pid in (cluster.pid, *(child.pid for child in multiprocessing.active_children())):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[:1])
    for thread in Path(f"/proc/{here}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores[1:] or cores)


def told(run: dict[str, Any]) -> str:
    """A line about a run."""
    writes = f"a write's p50/p99 {run['p50_ms']:.1f}/{run['p99_ms']:.1f} ms, load {os.getloadavg()[0]:.1f}"
    if "rows" not in run:
        return f"{run['phase']:>10}: {writes}"
    spark, broker = run["rows"] / run["spark_cpu_seconds"], run["broker_cpu_seconds"]
    total = run["rows"] / (run["spark_cpu_seconds"] + broker)
    return (
        f"{run['phase']:>10}: {run['rows'] / run['seconds']:>10,.0f} rows/s, {spark:>10,.0f} a CPU second of Spark, "
        f"{total:>10,.0f} of both; the broker used {broker:.1f} s; {writes}"
    )


def spark_phase(
    spark: Any, cluster: Cluster, pipe: Connection, phase: str, topic: str, ends: dict[str, int], url: str
) -> dict[str, Any]:
    """One turn: nobody reads, Spark reads through the broker, or past it."""
    assert cluster.pid is not None
    ask(pipe)
    run: dict[str, Any] = {"phase": phase}
    began, spent, broker = time.perf_counter(), spark_cpu_seconds(cluster), cpu_seconds(cluster.pid)
    if phase == "idle":
        time.sleep(5)
    else:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        reader = reader.option("subscribe", topic).option("endingOffsets", json.dumps({topic: ends}))
        if phase == "tier":
            reader = reader.option("tier.url", url)
        reader.load().write.format("noop").mode("overwrite").save()
        run["rows"] = sum(ends.values())
        run["spark_cpu_seconds"] = spark_cpu_seconds(cluster) - spent
        run["broker_cpu_seconds"] = cpu_seconds(cluster.pid) - broker
    run["seconds"] = time.perf_counter() - began
    cuts = quantiles(ask(pipe), n=100)
    return run | {"p50_ms": cuts[49], "p99_ms": cuts[98]}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tier", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few megabytes, one turn; nothing is stored")
    parser.add_argument("--only", choices=("consumers", "spark"), help="one of the two alone; nothing is stored")
    parser.add_argument("--output", type=Path, default=RAW, help="where the raw figures go")
    options = parser.parse_args(arguments)
    repetitions = 1 if options.quick else REPETITIONS
    megabytes = 100 if options.quick else 500
    raw: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "repetitions": repetitions}
    raw |= {"date": datetime.date.today().isoformat(), "load_before": os.getloadavg()[0], "megabytes": megabytes}
    raw["consumers"] = measure_consumers(megabytes, repetitions) if options.only != "spark" else []
    raw["spark"] = measure_spark(megabytes, repetitions) if options.only != "consumers" else []
    raw["load_after"] = os.getloadavg()[0]
    if not options.quick and options.only is None:
        options.output.write_text(json.dumps(raw, indent=1) + "\n")
        print(section(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
