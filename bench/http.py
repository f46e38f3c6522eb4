"""`python -m bench.http`: publishing over HTTP, one record a request, and what it does to the broker's own path.

The load comes from wrk (Debian's package `wrk`), which is compiled and cheap; its CPU time is told apart from the
gateway's and the broker's. Broker, gateway and wrk share the machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.gateway_process import GatewayProcess

from bench.http_figures import RAW, section
from bench.processes import cpu_seconds, machine_busy_seconds
from penstock.testing import Cluster

TOPIC = "http"
PARTITIONS = 3
ROUTES = {
    "publish": (f"/topics/{TOPIC}/publish", '{"key": "order_123", "value": "%s"}', "application/json"),
    "messages": (f"/api/v1/topics/{TOPIC}/messages", "%s", "application/octet-stream"),
}
SCRIPT = """
wrk.method = "POST"
wrk.body = [[%(body)s]]
wrk.headers["Content-Type"] = "%(type)s"
%(more)s
done = function(summary, latency, requests)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    + summary.errors.timeout
  io.write(string.format("RESULT %%d %%d %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration, failed,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
"""
PACED_PER_SECOND = 500
WARM_UP_S = 2
QUIET_S = 1.0
QUIET_SHARE = 0.15


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.http", description="Measure publishing over HTTP.")
    parser.add_argument("--seconds", type=int, default=10, help="how long each run takes (default 10)")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--patience", type=float, default=60, help="wait so many seconds for a quiet machine")
    parser.add_argument("--no-broker-path", action="store_true", help="leave out the broker's own latency")
    parser.add_argument("--output", type=Path, default=RAW, help="where the figures are kept")
    options = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)
        return 1
    with Cluster() as cluster:
        make_topic(cluster.bootstrap_servers)
        outcomes = []
        for _ in range(options.repetitions):
            with GatewayProcess(cluster.bootstrap_servers) as gateway:
                outcomes += [publish(gateway, cluster, route, options) for route in ROUTES]
        beside = {} if options.no_broker_path else broker_path(cluster, options)
    raw = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "connections": options.connections,
        "value_bytes": options.value_bytes,
        "publish": outcomes,
        "broker": beside,
    }
    options.output.write_text(json.dumps(raw, indent=1) + "\n")
    print(section(raw))
    return 0


def make_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()


def publish(gateway: GatewayProcess, cluster: Cluster, route: str, options: argparse.Namespace) -> dict[str, Any]:
    """One run against one route: times in milliseconds, CPU in microseconds a request."""
    assert cluster.pid is not None
    pids = {"gateway": gateway.pid, "broker": cluster.pid}
    run_wrk(gateway.rest, route, options, WARM_UP_S)
    await_quiet(options.patience)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    machine = machine_busy_seconds()
    numbers, wrk_cpu = run_wrk(gateway.rest, route, options, options.seconds)
    used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    requests, duration_us, failed, p50, p99, p999, _ = numbers
    others = machine_busy_seconds() - machine - sum(used.values()) - wrk_cpu
    return {
        "route": route,
        "requests_per_second": requests / (duration_us / 1e6),
        "failed": failed,
        "p50_ms": p50 / 1000,
        "p99_ms": p99 / 1000,
        "p999_ms": p999 / 1000,
        "gateway_us": used["gateway"] / requests * 1e6,
        "broker_us": used["broker"] / requests * 1e6,
        "wrk_us": wrk_cpu / requests * 1e6,
        "others_share": max(0.0, others) / (duration_us / 1e6) / (os.cpu_count() or 1),
    }


def run_wrk(base: str, route: str, options: argparse.Namespace, seconds: int) -> tuple[list[int], float]:
    """What wrk counted, and its CPU seconds."""
    path, body, kind = ROUTES[route]
    more = 'wrk.headers["X-Partition-Key"] = "order_123"' if route == "messages" else ""
    script = SCRIPT % {"body": body % ("x" * options.value_bytes), "type": kind, "more": more}
    with tempfile.TemporaryDirectory() as directory:
        lua = Path(directory) / "publish.lua"
        lua.write_text(script)
        command = ["wrk", "-t1", f"-c{options.connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(lua)]
        before = _children_cpu_seconds()
        done = subprocess.run([*command, f"{base}{path}"], capture_output=True, text=True, check=True)
    numbers = re.search(r"RESULT ([\d ]+)", done.stdout)
    assert numbers is not None, done.stdout
    return [int(word) for word in numbers[1].split()], _children_cpu_seconds() - before


def _children_cpu_seconds() -> float:
    """Of children that have ended: broker and gateway still run."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def broker_path(cluster: Cluster, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """How long the broker takes to acknowledge single records: without a gateway, beside an idle and a busy one."""
    rounds: dict[str, list[dict[str, float]]] = {"no gateway": [], "an idle gateway": [], "a busy gateway": []}
    for _ in range(options.repetitions):
        await_quiet(options.patience)
        rounds["no gateway"].append(latencies(cluster, options))
        with GatewayProcess(cluster.bootstrap_servers) as gateway:
            await_quiet(options.patience)
            rounds["an idle gateway"].append(latencies(cluster, options))
            await_quiet(options.patience)
            loading = threading.Thread(target=run_wrk, args=(gateway.rest, "publish", options, options.seconds + 2))
            loading.start()
            time.sleep(1)
            rounds["a busy gateway"].append(latencies(cluster, options))
            loading.join()
    return rounds


def latencies(cluster: Cluster, options: argparse.Namespace) -> dict[str, float]:
    """Quantiles of the broker's answers, with the share of the machine that others used meanwhile."""
    # Everything that is ours is in the tree of this process.
    before, machine = cpu_seconds(os.getpid()), machine_busy_seconds()
    began = time.monotonic()
    found = paced_latencies(cluster.bootstrap_servers, options.seconds)
    others = machine_busy_seconds() - machine - (cpu_seconds(os.getpid()) - before)
    return {**found, "others_share": max(0.0, others) / (time.monotonic() - began) / (os.cpu_count() or 1)}


def await_quiet(patience_s: float) -> None:
    """Wait until other programs leave the processors alone, but not longer than that."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = machine_busy_seconds()
        time.sleep(QUIET_S)
        if machine_busy_seconds() - before < QUIET_S * (os.cpu_count() or 1) * QUIET_SHARE:
            return


def paced_latencies(bootstrap_servers: str, seconds: int) -> dict[str, float]:
    """Quantiles of the milliseconds from sending to acknowledgement, of single records at a steady pace."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0})
    taken: list[float] = []
    count = PACED_PER_SECOND * seconds
    started = time.perf_counter()
    for number in range(count):
        due = started + number / PACED_PER_SECOND
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        sent = time.perf_counter()
        producer.produce(
            TOPIC, b"x" * 100, on_delivery=lambda *_, at=sent: taken.append((time.perf_counter() - at) * 1000)
        )
        producer.poll(0)
    producer.flush(30)
    return quantiles(taken[count // 10 :])


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
