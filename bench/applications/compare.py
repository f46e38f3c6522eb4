"""The same programs in several frameworks, run on one broker: lines, throughput and latency, for docs/coming_from.md.

    python -m bench.applications.compare --peers PYTHON

Each program reads records that are there already (throughput, from its first commit on, for up to 15 seconds), then
single ones (latency, from sending an order to its result; only where a program has results).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.applications import celery_queue
from bench.applications.figures import keep
from penstock.app.processing.kafka import share_lag
from penstock.client.application.admin import Admin
from penstock.client.application.consumer import Consumer
from penstock.client.application.producer import Producer
from penstock.testing import Cluster

PROGRAMS = Path(__file__).with_name("compared")
RUNS = {
    "retries": ("billing", "orders", ("penstock", "faststream", "quix", "aiokafka")),
    "enrich": ("enrich", "orders", ("penstock", "quix", "aiokafka")),
    "queue": ("packers", "jobs", ("penstock", "celery")),
}
SAMPLES = 50
SECONDS = 15.0


def main() -> int:
    """Run all programs, and print a row for each."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument(
        "--peers", required=True, help="an interpreter that has FastStream, Quix Streams and aiokafka"
    )
    arguments.add_argument("--records", type=int, default=200_000)
    chosen = arguments.parse_args()
    if not celery_queue.is_there():
        raise SystemExit("Celery needs a redis-server on the PATH")
    measured: dict[str, dict[str, Any]] = {}
    for kind, (group, topic, names) in RUNS.items():
        for name in names:
            python = sys.executable if name == "penstock" else chosen.peers
            path = PROGRAMS / f"{name}_{kind}.py"
            rows = measured.setdefault(kind, {})
            if name == "celery":
                rates: tuple[float, float | None] = celery_queue.jobs_a_second(python, path), None
            else:
                rates = run(kind, path, group, topic, python, chosen.records)
            rows[name] = {"lines": lines_of(path), "rate": round(rates[0]), "latency_ms": rates[1]}
            print(kind, name, rows[name], flush=True)
    keep("programs", measured)
    return 0


def run(kind: str, path: Path, group: str, topic: str, python: str, records: int) -> tuple[float, float | None]:
    """One program on a broker of its own: records a second, and milliseconds from an order to its result."""
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin, Producer(servers) as producer:
            for each, partitions in ((topic, 4), ("priced", 4), (f"dlq.{topic}", 1)):
                admin.create_topic(each, partitions, 1)
            for number in range(records):
                producer.send(topic, f"customer-{number % 500}", {"item": "tea", "amount": 2})
            producer.flush()
            environment = {**os.environ, "PENSTOCK_BOOTSTRAP": servers}
            program = subprocess.Popen([python, str(path)], env=environment, stderr=subprocess.DEVNULL)
            try:
                rate = throughput(admin, kind, group, topic, records)
                latency = latency_ms(servers, producer) if kind == "enrich" else None
            finally:
                program.send_signal(signal.SIGTERM)
                program.wait(60)
    return rate, latency


def throughput(admin: Admin, kind: str, group: str, topic: str, records: int) -> float:
    """Records a second from the first commit on, until everything is done or enough has been seen."""
    began: tuple[float, int] | None = None
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        lag = share_lag(admin.connection, group) if kind == "queue" else sum(admin.group_lag(group, [topic]).values())
        now = time.perf_counter()
        done = 0 if lag is None else records - lag
        if began is None and done > 0:
            if done == records:
                raise SystemExit("everything was done at the first commit: use more --records")
            began = (now, done)
        elif began is not None and (done >= records or now - began[0] > SECONDS):
            return (done - began[1]) / (now - began[0])
        time.sleep(0.02)
    raise SystemExit(f"{kind} did not begin")


def latency_ms(servers: str, producer: Producer) -> float:
    """The median time from sending an order to its result."""
    samples = []
    with Consumer(servers, start="latest", value=dict) as consumer:
        consumer.subscribe("priced")
        consumer.poll(1.0)
        for number in range(SAMPLES):
            started = time.perf_counter()
            producer.send("orders", f"late-{number}", {"item": "coffee", "amount": number})
            while True:
                record = consumer.poll(10.0)
                assert record is not None
                if record.key == f"late-{number}":
                    break
            samples.append((time.perf_counter() - started) * 1000)
    return statistics.median(samples)


def lines_of(path: Path) -> int:
    """Lines of code: without empty ones and docstrings of modules."""
    return len([line for line in path.read_text().splitlines()[1:] if line.strip()])


if __name__ == "__main__":
    sys.exit(main())
