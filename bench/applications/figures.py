"""What was measured of applications, and how docs/coming_from.md tells of it."""

from __future__ import annotations

import datetime
import json
import os
import re
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
RAW = ROOT / "bench" / "results" / "applications.json"
PAGE = ROOT / "docs" / "coming_from.md"
NAMES = {
    "penstock": "here",
    "faststream": "FastStream",
    "quix": "Quix Streams",
    "aiokafka": "aiokafka",
    "celery": "Celery on Redis",
}
# What no benchmark measures, by program and framework.
REMARKS = {
    "retries": {
        "penstock": ("others continue, its key waits", "resumes where each record was"),
        "aiokafka": ("everything waits", "repeats the batch"),
        "quix": ("everything waits", "repeats since the last commit"),
        "faststream": ("its partition waits", "repeats one record: it commits each by itself"),
    },
    "enrich": {
        "penstock": ("dead letters, in the same transaction",),
        "quix": ("stops the application",),
        "aiokafka": ("stops the application",),
    },
    "queue": {
        "penstock": ("dead-lettered with the reason", "comes back at once"),
        "celery": ("is dropped, with a line in the log", "comes back after an hour (`visibility_timeout`)"),
    },
}
HEADS = {
    "retries": ("while a record waits for its next try", "after a restart"),
    "enrich": ("order to result, p50", "a record that cannot be priced"),
    "queue": ("a job that has had its tries", "a job whose worker died"),
}


def keep(part: str, measured: Any) -> dict[str, Any]:
    """Store one part of the results, and write the page's tables anew."""
    raw: dict[str, Any] = json.loads(RAW.read_text()) if RAW.exists() else {}
    raw[part] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "measured": measured,
    }
    RAW.write_text(json.dumps(raw, indent=1) + "\n")
    PAGE.write_text(rewritten(PAGE.read_text(), raw))
    return raw


def kept(part: str) -> dict[str, Any]:
    """What was measured of one part before."""
    found: dict[str, Any] = json.loads(RAW.read_text()).get(part, {}).get("measured", {}) if RAW.exists() else {}
    return found


def rewritten(page: str, raw: dict[str, Any]) -> str:
    """A page with its tables as the results say."""
    for name, table in tables(raw).items():
        marks = (f"<!-- figures: {name} -->", "<!-- end of figures -->")
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        page = pattern.sub(lambda _, table=table, marks=marks: f"{marks[0]}\n{table}\n{marks[1]}", page)
    return page


def tables(raw: dict[str, Any]) -> dict[str, str]:
    """The tables by the names that the page gives them."""
    found = {}
    if "programs" in raw:
        found |= {kind: _programs(kind, raw["programs"]["measured"][kind]) for kind in HEADS}
    if "throughput" in raw:
        found["throughput"] = _throughput(raw["throughput"])
    return found


def _programs(kind: str, rows: dict[str, Any]) -> str:
    lines = [f"| | lines | {'jobs' if kind == 'queue' else 'records'}/s | {' | '.join(HEADS[kind])} |"]
    lines.append("|---|---:|---:|" + "---|" * len(HEADS[kind]))
    for name in sorted(rows, key=lambda each: -rows[each]["rate"]):
        row, remarks = rows[name], REMARKS[kind][name]
        if row["latency_ms"] is not None:
            remarks = (f"{row['latency_ms']:,.0f} ms", *remarks)
        lines.append(f"| {NAMES[name]} | {row['lines']} | {row['rate']:,.0f} | {' | '.join(remarks)} |")
    return "\n".join(lines)


def _throughput(part: dict[str, Any]) -> str:
    lines = ["| | ours/s | theirs/s | ratio | lowest and highest |", "|---|---:|---:|---:|---|"]
    for title, rates in part["measured"].items():
        ratios = [one / two for one, two in zip(rates["ours"], rates["theirs"], strict=True)]
        lines.append(
            f"| {title} | {median(rates['ours']):,.0f} | {median(rates['theirs']):,.0f} | {median(ratios):.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    rounds = len(next(iter(part["measured"].values()))["ours"])
    lines += [
        "",
        f"{part['date']}, {part['cores']} cores that other work shared (load {part['load']}).",
        f"Each ratio is the median of {rounds} rounds, in each of which both ran one after the other.",
    ]
    return "\n".join(lines)
