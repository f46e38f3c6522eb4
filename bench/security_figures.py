"""What was measured of TLS and of access lists, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

RAW = REPOSITORY / "bench" / "results" / "security.json"


def section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of it."""
    lines = [
        "## What safety costs",
        "",
        f"Measured by `python -m bench.security` in a run of its own ({raw['date']}, medians of {raw['rounds']} turns, "
        f"{raw['cores']} cores for everything, load {raw['load_before']:.1f} before, {raw['load_after']:.1f} after). "
        "One node, one partition, one librdkafka client that writes with acks=1 and then reads; both brokers have "
        "access lists on. In brackets the broker's CPU seconds for a million records.",
        "",
        "| | plain text, records/s | TLS, records/s | TLS / plain |",
        "|---|---:|---:|---:|",
    ]
    runs = raw["runs"]
    for work, size, peer in dict.fromkeys((run["work"], run["size"], run["peer"]) for run in runs):
        chosen = [run for run in runs if (run["work"], run["size"], run["peer"]) == (work, size, peer)]
        rates, cells = [], []
        for way in ("plain", "TLS"):
            rate, cpu = (median(run[key] for run in chosen if run["way"] == way) for key in ("rate", "cpu"))
            rates.append(rate)
            cells.append(f"{rate:,.0f} ({cpu:.2f})")
        lines.append(f"| {peer}, {work}, {size} bytes | {cells[0]} | {cells[1]} | {rates[1] / rates[0]:.2f} |")
    lines += ["", "| access lists | a decision, first time | once it is known |", "|---|---:|---:|"]
    for one in raw["authorizing"]:
        lines.append(f"| {one['entries']:,} entries | {one['first_us']:.2f} µs | {one['known_us']:.2f} µs |")
    return "\n".join(lines)
