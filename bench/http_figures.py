"""What was measured of publishing over HTTP, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

from bench.figures import OTHERS_SHARE_MAX

RAW = REPOSITORY / "bench" / "results" / "http.json"
PATHS = {"publish": "`POST /topics/{topic}/publish`", "messages": "`POST /api/v1/topics/{topic}/messages`"}


def section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of it."""
    lines = [
        "## Publishing over HTTP",
        "",
        f"Measured by `python -m bench.http` in a run of its own ({raw['date']}): one node, one gateway and wrk with "
        f"{raw['connections']} connections share this machine's cores; one record of {raw['value_bytes']} B a request, "
        "each answered when it is on disk. CPU is microseconds a request. Medians of the runs in which nothing else "
        f"used more than {OTHERS_SHARE_MAX:.0%} of the machine.",
        "",
        "| | requests/s | p50 ms | p99 ms | gateway CPU | broker CPU | wrk's CPU |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for route, path in PATHS.items():
        runs = quiet([run for run in raw["publish"] if run["route"] == route])
        if runs:
            rate, p50, p99, gateway, broker, wrk = (
                median(run[name] for run in runs)
                for name in ("requests_per_second", "p50_ms", "p99_ms", "gateway_us", "broker_us", "wrk_us")
            )
            lines.append(f"| {path} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {gateway:.0f} | {broker:.0f} | {wrk:.0f} |")
    if raw["broker"]:
        lines += [
            "",
            "What it does to the broker's own path: milliseconds until a single record, sent by librdkafka with "
            "acks=all 500 times a second, is acknowledged. The busy gateway has the load above, on the same cores.",
            "",
            "| | p50 ms | p99 ms |",
            "|---|---:|---:|",
        ]
        lines += [
            f"| {name} | {median(run['p50_ms'] for run in runs):.2f} | {median(run['p99_ms'] for run in runs):.2f} |"
            for name, measured in raw["broker"].items()
            if (runs := quiet(measured))
        ]
    return "\n".join(lines)


def quiet(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that nobody disturbed; where there are none, all."""
    return [run for run in runs if run.get("others_share", 0) <= OTHERS_SHARE_MAX] or runs
