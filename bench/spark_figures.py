"""What is measured of Spark's reads, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

RAW = REPOSITORY / "bench" / "results" / "spark.json"
FORMS = ("penstock", "kafka")


def section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of it."""
    lines = [
        "## Spark reading a topic",
        "",
        f"Measured by `python -m bench.spark` in a run of its own ({raw['date']}, median of "
        f"{raw['repetitions']} turns after {raw['warm_up']} to warm Java up): Spark {raw['spark']} in one process with "
        f"{raw['cores']} cores reads a topic of four partitions on a Penstock broker into `noop`, "
        "with the format `penstock` and with Spark's own "
        f"Kafka connector ({raw['connector']}), taking turns. CPU is that of Spark and its Python workers; the broker "
        "has the same cores, and is not counted. In brackets the ratio to Spark's connector.",
        "",
        "| what | `penstock` | `kafka` |",
        "|---|---:|---:|",
    ]
    for name in dict.fromkeys(run["workload"] for run in raw["runs"]):
        for title, key in (("rows a CPU second", "cpu_seconds"), ("rows a second", "seconds")):
            ours, theirs = (figure(raw, name, form, key) for form in FORMS)
            ratio = f" ({ours / theirs:.2f}x)" if ours is not None and theirs else ""
            cells = [f"{number:,.0f}" if number is not None else "-" for number in (ours, theirs)]
            lines.append(f"| {name}: {title} | {cells[0]}{ratio} | {cells[1]} |")
    lines += [
        "",
        f"The machine's load was {raw['load_before']:.1f} before the run and {raw['load_after']:.1f} after it. What "
        "else runs takes from rows a second, and not from both alike; rows a CPU second are the figure to go by.",
    ]
    return "\n".join(lines)


def figure(raw: dict[str, Any], workload: str, form: str, key: str) -> float | None:
    """The median of rows by time of a kind; None where nothing was measured."""
    chosen = [run for run in raw["runs"] if run["workload"] == workload and run["form"] == form]
    return median(run["rows"] / run[key] for run in chosen) if chosen else None
