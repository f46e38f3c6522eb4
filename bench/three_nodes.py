"""What is measured of three nodes, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

from bench.workloads import Kind, Workload

RAW = REPOSITORY / "bench" / "results" / "cluster.json"

WORKLOADS = (
    Workload(Kind.PRODUCE, 100, "all", count=4_000_000),
    Workload(Kind.CONSUME, 100, count=4_000_000),
    Workload(Kind.PRODUCE, 1000, "all", count=500_000),
    Workload(Kind.CONSUME, 1000, count=500_000),
    Workload(Kind.LATENCY, 100, "all", rate=1_000, seconds=10, warm_up_seconds=3),
    Workload(Kind.LATENCY, 100, "all", rate=10_000, seconds=10, warm_up_seconds=3),
    Workload(Kind.END_TO_END, 100, "all", rate=1_000, seconds=10, warm_up_seconds=3),
)

Row = dict[str, Any]
Figure = tuple[str, Callable[[Row], float], str]


def section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of it."""
    lines = [
        "## Three nodes, three replicas",
        "",
        f"Measured by `python -m bench.cluster` in a run of its own ({raw['machine']['date'][:10]}, median of "
        f"{raw['repetitions']}): three nodes, each broker and controller, three replicas, `min.insync.replicas=2`, an "
        "idempotent producer with acks=all. All nodes and the load share this machine's cores, so the figures compare; "
        "they are not what three machines would do. In brackets the ratio to Apache Kafka.",
        "",
        "| what | Penstock | Apache Kafka |",
        "|---|---:|---:|",
    ]
    for workload in WORKLOADS:
        ours, theirs = (rows_of(raw, peer, workload.key) for peer in ("penstock", "kafka"))
        for title, value, unit in FIGURES[workload.kind]:
            mine, other = (median([value(row) for row in rows]) if rows else None for rows in (ours, theirs))
            ratio = f" ({mine / other:.2f}x)" if mine is not None and other else ""
            cells = [f"{number:{unit}}" if number is not None else "-" for number in (mine, other)]
            lines.append(f"| {title} {workload.title} | {cells[0]}{ratio} | {cells[1]} |")
    for title, value in (("start to first record, s", "seconds"), ("idle memory of all three, MB", "idle_bytes")):
        scale = 1 << 20 if value == "idle_bytes" else 1
        mine, other = (
            median([row[value] / scale for row in rows_of(raw, peer, "start")]) for peer in ("penstock", "kafka")
        )
        lines.append(f"| {title} | {mine:.2f} ({mine / other:.2f}x) | {other:.2f} |")
    return "\n".join(lines)


FIGURES: dict[Kind, tuple[Figure, ...]] = {
    Kind.PRODUCE: (
        ("write, records/s:", lambda row: row["records"] / row["seconds"], ",.0f"),
        ("write, CPU s a million:", lambda row: row["cpu_seconds"] / row["records"] * 1e6, ".2f"),
    ),
    Kind.CONSUME: (("read, records/s:", lambda row: row["records"] / row["seconds"], ",.0f"),),
    Kind.LATENCY: (
        ("produce p50, ms:", lambda row: row["acknowledged_us"]["p50"] / 1000, ".2f"),
        ("produce p99, ms:", lambda row: row["acknowledged_us"]["p99"] / 1000, ".2f"),
    ),
    Kind.END_TO_END: (("end to end p99, ms:", lambda row: row["received_us"]["p99"] / 1000, ".2f"),),
}


def rows_of(raw: dict[str, Any], peer: str, workload: str) -> list[dict[str, Any]]:
    return [row for row in raw["runs"] if row["peer"] == peer and row["workload"] == workload and "failure" not in row]
