"""What is measured of tiered topics, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

RAW = REPOSITORY / "bench" / "results" / "tier.json"
STORES = {"directory": "a directory", "s3": "S3 (moto's server)"}
PHASES = {"idle": "no reader", "brokers": "Spark through the broker", "tier": "Spark past the broker"}
MEGABYTE = 1_000_000

Run = dict[str, Any]


def section(raw: Run) -> str:
    """The part of docs/benchmarks.md that tells of it."""
    lines = [
        "## Old records from object storage",
        "",
        f"Measured by `python -m bench.tier` in a run of its own ({raw['date']}, medians of {raw['repetitions']} "
        f"turns, {raw['megabytes']} MB a partition, records of 1 KB, {raw['cores']} cores for everything). A consumer "
        "(librdkafka) reads through a broker whose cache is empty; next to it one reader gets the same objects with "
        "obstore.",
        "",
        "| store | to a consumer, MB/s | the store itself, MB/s | ratio |",
        "|---|---:|---:|---:|",
    ]
    for store, title in STORES.items():
        runs = [run for run in raw["consumers"] if run["store"] == store]
        through, alone = (median(run[key] / MEGABYTE for run in runs) for key in ("consumer", "alone"))
        ratio = median(run["consumer"] / run["alone"] for run in runs)
        lines.append(f"| {title} | {through:,.0f} | {alone:,.0f} | {ratio:.2f} |")
    lines += [
        "",
        "Spark (the format `penstock`, two partitions in a directory), while a client writes a record at a time to "
        "another topic; the broker and the writer have one core, Spark has the others:",
        "",
        "| | rows a CPU second of Spark and the broker | the broker's CPU, s | a write, p50 ms | p99 ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for phase, title in PHASES.items():
        runs = [run for run in raw["spark"] if run["phase"] == phase]
        cells = [number(runs, rows_a_cpu_second, "{:,.0f}"), number(runs, broker_cpu, "{:.1f}")]
        cells += [f"{median(run[key] for run in runs):.1f}" for key in ("p50_ms", "p99_ms")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        f"The machine's load was {raw['load_before']:.1f} before the run and {raw['load_after']:.1f} after it.",
    ]
    return "\n".join(lines)


def rows_a_cpu_second(run: Run) -> float:
    """By Spark and the broker together."""
    return float(run["rows"] / (run["spark_cpu_seconds"] + run["broker_cpu_seconds"]))


def broker_cpu(run: Run) -> float:
    """The broker's alone."""
    return float(run["broker_cpu_seconds"])


def number(runs: list[Run], figure: Callable[[Run], float], form: str) -> str:
    """The median of what was read; a dash where nothing was."""
    read = [run for run in runs if "rows" in run]
    return form.format(median(map(figure, read))) if read else "-"
