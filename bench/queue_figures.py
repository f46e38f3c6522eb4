"""What was measured of queues and of delayed records, and how docs/benchmarks.md tells of it."""

from __future__ import annotations

import json
import os
from statistics import median
from typing import Any

from tests.support.tools import REPOSITORY

QUEUES_RAW = REPOSITORY / "bench" / "results" / "queues.json"
QUEUES_IN_MEMORY_RAW = REPOSITORY / "bench" / "results" / "queues_in_memory.json"
DELAYS_RAW = REPOSITORY / "bench" / "results" / "delays.json"
_PRIORITY = "Brokers and clients alike ran before all other work of the machine (`chrt -r 1`). "


def is_realtime() -> bool:
    """Whether this process, and so all that it starts, runs before all other work of the machine."""
    return os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)


def queues_section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of queues."""
    lines = [
        "## Queues",
        "",
        f"Measured by `python -m bench.queues` in a run of its own ({_when(raw)}): one node, one partition or queue, "
        f"{raw['workers']} workers, each a process of its own. A backlog is drained with every record acknowledged "
        f"alone; then records come at {raw['rate']} a second, which each broker can do, and the time until a worker "
        f"has one is counted{_warm(raw)}. Share groups are read by librdkafka's share consumer, RabbitMQ by pika. "
        f"{_PRIORITY if raw.get('is_realtime') else ''}Medians of {raw['repetitions']} turns.",
        "",
        "Acknowledgements are durable on Penstock before they are answered, and a share consumer's next records come "
        "with that answer; RabbitMQ's consumers wait for none. Penstock and RabbitMQ sync records and acknowledgements "
        "to the disk, as Kafka does with `log.flush.interval.messages=1`. Not synced: Kafka as it comes. Records "
        "not synced: Penstock with `penstock.sync.on.ack=false`, which syncs acknowledgements all the same. So the p99 "
        "on a disk is that of its syncs, and changes from run to run.",
        "",
        queues_table(raw),
    ]
    if QUEUES_IN_MEMORY_RAW.exists():
        memory = json.loads(QUEUES_IN_MEMORY_RAW.read_text())
        lines += [
            "",
            f"The same with data in memory (`--in-memory`, {_when(memory)}), where a sync costs nothing, so that what "
            "the brokers do themselves is compared:",
            "",
            queues_table(memory),
        ]
    return "\n".join(lines)


def queues_table(raw: dict[str, Any]) -> str:
    """A row a broker."""
    lines = [
        "| | records/s | p50 ms | p99 ms |",
        "|---|---:|---:|---:|",
    ]
    for name, runs in raw["brokers"].items():
        rate, p50, p99 = (median(run[key] for run in runs) for key in ("records_a_second", "p50_ms", "p99_ms"))
        lines.append(f"| {name} | {rate:,.0f} | {p50:.2f} | {p99:.1f} |")
    return "\n".join(lines)


def delays_section(raw: dict[str, Any]) -> str:
    """The part of docs/benchmarks.md that tells of delayed records."""
    late, memory = raw["late_ms"], raw["memory_mb"]
    return (
        "## Delayed records\n\n"
        f"Measured by `python -m bench.delays` in a run of its own ({_when(raw)}): {raw['records']:,} records in no "
        f"order, due over {raw['seconds']:,} s, taken by one member of a share group. "
        f"{_PRIORITY if raw.get('is_realtime') else ''}{raw['early']} came early. "
        f"Late by a median of {late['median']:.0f} ms, 99 % {late['p99']} ms, 99.9 % {late['p999']} ms, at most "
        f"{late['max']} ms. "
        f"The broker had {memory['before']:.0f} MB in memory before, {memory['waiting']:.0f} MB with all of them "
        f"waiting, {memory['end']:.0f} MB at the end."
    )


def _warm(raw: dict[str, Any]) -> str:
    return f", but for the first {raw['warm_seconds']} s" if raw.get("warm_seconds") else ""


def _when(raw: dict[str, Any]) -> str:
    return f"{raw['date']}, load {raw['load_before']:.1f} before and {raw['load_after']:.1f} after"
