"""What was measured of queues and of delayed records, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

QUEUES_RAW = REPOSITORY / "bench" / "results" / "queues.json"
DELAYS_RAW = REPOSITORY / "bench" / "results" / "delays.json"


def queues_section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of queues."""
    lines = [
        "## Queues",
        "",
        f"Measured by `python -m bench.queues` in a run of its own ({_when(raw)}): one node, one partition or queue, "
        f"{raw['workers']} workers, each a process of its own. A backlog is drained with every record acknowledged "
        f"alone; then records come at {raw['rate']} a second, and the time until a worker has one is counted. Share "
        "groups are read by librdkafka's share consumer, RabbitMQ by pika. Medians of "
        f"{raw['repetitions']} turns.",
        "",
        "| | records/s | p50 ms | p99 ms |",
        "|---|---:|---:|---:|",
    ]
    for name, runs in raw["brokers"].items():
        rate, p50, p99 = (median(run[key] for run in runs) for key in ("records_a_second", "p50_ms", "p99_ms"))
        lines.append(f"| {name} | {rate:,.0f} | {p50:.1f} | {p99:.1f} |")
    return "\n".join(lines)


def delays_section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of delayed records."""
    late, memory = raw["late_ms"], raw["memory_mb"]
    return (
        "## Delayed records\n\n"
        f"Measured by `python -m bench.delays` in a run of its own ({_when(raw)}): {raw['records']:,} records in no "
        f"order, due over {raw['seconds']:,} s, taken by one member of a share group. {raw['early']} came early. "
        f"Late by a median of {late['median']:.0f} ms, 99 % {late['p99']} ms, 99.9 % {late['p999']} ms, at most "
        f"{late['max']} ms. "
        f"The broker had {memory['before']:.0f} MB in memory before, {memory['waiting']:.0f} MB with all of them "
        f"waiting, {memory['end']:.0f} MB at the end."
    )


def _when(raw: dict[str, Any]) -> str:
    return f"{raw['date']}, load {raw['load_before']:.1f} before and {raw['load_after']:.1f} after"
