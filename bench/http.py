"""`python -m bench.http`: publishing over HTTP, one record a request, and what it does to the broker's own path.

The load comes from wrk (Debian's package `wrk`), which is compiled and cheap; its CPU time is told apart from the
gateway's and the broker's. Broker, gateway and wrk share the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.gateway_process import GatewayProcess

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of wrk; times in milliseconds, CPU in microseconds a request."""

    route: str
    requests_per_second: float
    failed: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    gateway_us: float
    broker_us: float
    wrk_us: float
    others_share: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.http", description="Measure publishing over HTTP.")
    parser.add_argument("--seconds", type=int, default=10, help="how long each run takes (default 10)")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--routes", default="publish,messages")
    parser.add_argument("--no-broker-path", action="store_true", help="leave out the broker's own latency")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)
        return 1
    with Cluster() as cluster:
        make_topic(cluster.bootstrap_servers)
        with GatewayProcess(cluster.bootstrap_servers) as gateway:
            outcomes = [
                publish(gateway, cluster, route, options)
                for _ in range(options.repetitions)
                for route in options.routes.split(",")
            ]
        beside = {} if options.no_broker_path else broker_path(cluster, options)
    if options.json:
        print(json.dumps({"publish": [vars_of(each) for each in outcomes], "broker": beside}))
    else:
        show(outcomes, beside)
    return 0


def make_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()


def publish(gateway: GatewayProcess, cluster: Cluster, route: str, options: argparse.Namespace) -> Outcome:
    """One run against one route."""
    assert cluster.pid is not None
    pids = {"gateway": gateway.pid, "broker": cluster.pid}
    run_wrk(gateway.rest, route, options, 2)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    machine = machine_busy_seconds()
    numbers, wrk_cpu = run_wrk(gateway.rest, route, options, options.seconds)
    used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    requests, duration_us, failed, p50, p99, p999, _ = numbers
    ours = sum(used.values()) + wrk_cpu
    others = max(0.0, machine_busy_seconds() - machine - ours) / (duration_us / 1e6) / 2
    return Outcome(
        route,
        requests / (duration_us / 1e6),
        failed,
        p50 / 1000,
        p99 / 1000,
        p999 / 1000,
        used["gateway"] / requests * 1e6,
        used["broker"] / requests * 1e6,
        wrk_cpu / requests * 1e6,
        others,
    )


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


def broker_path(cluster: Cluster, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """How long the broker takes to acknowledge single records: without a gateway, beside an idle and a busy one.

    They take turns, and the median of each one's quantiles counts.
    """
    rounds: dict[str, list[dict[str, float]]] = {"no gateway": [], "idle gateway": [], "busy gateway": []}
    for _ in range(options.repetitions):
        rounds["no gateway"].append(paced_latencies(cluster.bootstrap_servers, options.seconds))
        with GatewayProcess(cluster.bootstrap_servers) as gateway:
            rounds["idle gateway"].append(paced_latencies(cluster.bootstrap_servers, options.seconds))
            loading = threading.Thread(target=run_wrk, args=(gateway.rest, "publish", options, options.seconds + 2))
            loading.start()
            time.sleep(1)
            rounds["busy gateway"].append(paced_latencies(cluster.bootstrap_servers, options.seconds))
            loading.join()
    return {
        name: {quantile: statistics.median(each[quantile] for each in measured) for quantile in measured[0]}
        for name, measured in rounds.items()
    }


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


def vars_of(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in outcome.__slots__}


def show(outcomes: list[Outcome], beside: dict[str, dict[str, float]]) -> None:
    print("| route | requests/s | p50 ms | p99 ms | p99.9 ms | gateway µs | broker µs | wrk µs | others | failed |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for each in sorted(outcomes, key=lambda outcome: outcome.route):
        print(
            f"| {each.route} | {each.requests_per_second:,.0f} | {each.p50_ms:.1f} | {each.p99_ms:.1f} |"
            f" {each.p999_ms:.1f} | {each.gateway_us:.0f} | {each.broker_us:.0f} | {each.wrk_us:.0f} |"
            f" {each.others_share:.0%} | {each.failed} |"
        )
    for name, figures in beside.items():
        print(f"broker's own path, {name}: p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
