"""Writes docs/benchmarks.md from the raw results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from bench.figures import (
    OTHERS_SHARE_MAX,
    Figure,
    Results,
    Run,
    cpu_per_million,
    percentile_ms,
    records_per_second,
    requests_per_second,
)
from bench.http_figures import RAW as HTTP_RAW
from bench.http_figures import section as http_section
from bench.queue_figures import DELAYS_RAW, QUEUES_RAW, delays_section, queues_section
from bench.security_figures import RAW as SECURITY_RAW
from bench.security_figures import section as security_section
from bench.spark_figures import RAW as SPARK_RAW
from bench.spark_figures import section as spark_section
from bench.three_nodes import RAW as CLUSTER_RAW
from bench.three_nodes import section as cluster_section
from bench.tier_figures import RAW as TIER_RAW
from bench.tier_figures import section as tier_section
from bench.workloads import PARTITIONS, Kind, Workload

REFERENCE = "kafka"
MEBIBYTE = 1 << 20
ABSENT = "-"
DISTURBED = " \\*"
PERCENTILES = (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "max"))
Cell = Callable[[str, Workload], str]


def render(results: Results, workloads: Sequence[Workload]) -> str:
    """The whole page."""
    parts = [_head(results)]
    for kind, heading, note in SECTIONS:
        chosen = [workload for workload in workloads if workload.kind is kind]
        chosen = [each for each in chosen if any(results.runs(peer, each.key) for peer in results.peers())]
        if chosen:
            parts.append(f"## {heading}\n\n{note}\n\n{_tables(results, kind, chosen)}")
    parts += [
        _start_and_memory(results),
        *_request_costs(results),
        *(section(json.loads(raw.read_text())) for raw, section in OWN_RUNS if raw.exists()),
        _how(results),
    ]
    return "\n\n".join(parts) + "\n"


SECTIONS = (
    (
        Kind.PRODUCE,
        "Writing",
        "Records a second from one librdkafka producer with its default batching (5 ms, 1 MB), no compression; in "
        "brackets the ratio to Apache Kafka, more is better. Every record was acknowledged and counted in the log "
        "afterwards. acks=all is the idempotent producer; `synced` sets `flush.messages=1`, so that each "
        "acknowledgement waits for the disk; 16 KB batches are what Java clients send by default. Peers with another "
        "protocol run under their own tool, as described above.",
    ),
    (
        Kind.CONSUME,
        "Reading",
        "One librdkafka consumer reads the topic just written from its start, from the page cache; offsets are checked "
        "to follow each other without a gap.",
    ),
    (
        Kind.LATENCY,
        "Time to acknowledgement at a fixed rate",
        "Open loop: each record has a due time and its latency runs from then, so a stall counts against every record "
        "it kept waiting. `linger.ms=0`, at most 5 requests in flight. Milliseconds, less is better.",
    ),
    (
        Kind.END_TO_END,
        "Time from due time to the consumer",
        "The same open loop with a consumer in the same process that waits at the end of the topic.",
    ),
    (
        Kind.REQUESTS,
        "One-record requests",
        "Produce requests with one 100-byte record each, one in flight per connection, from one epoll loop in C. "
        "Nothing is batched: this is what a request costs. Peers with another protocol: their own tool, as described "
        "above.",
    ),
)


# What is measured by runs of its own, and the last of them, if there was one.
OWN_RUNS = (
    (CLUSTER_RAW, cluster_section),
    (HTTP_RAW, http_section),
    (QUEUES_RAW, queues_section),
    (DELAYS_RAW, delays_section),
    (SPARK_RAW, spark_section),
    (TIER_RAW, tier_section),
    (SECURITY_RAW, security_section),
)


def _tables(results: Results, kind: Kind, workloads: Sequence[Workload]) -> str:
    if kind in (Kind.LATENCY, Kind.END_TO_END):
        return _latency_table(results, kind, workloads)
    rate = requests_per_second if kind is Kind.REQUESTS else records_per_second
    unit = "requests/s" if kind is Kind.REQUESTS else "records/s"
    tables = [_table(results, f"{unit}", workloads, lambda peer, each: _rate_cell(results, peer, each, rate))]
    tables.append(
        _table(
            results,
            "broker CPU, s per million",
            workloads,
            lambda peer, each: _plain_cell(results, peer, each, cpu_per_million),
        )
    )
    if kind is Kind.REQUESTS:
        p99 = percentile_ms("acknowledged_us", "p99")
        tables.append(_table(results, "p99, ms", workloads, lambda peer, each: _plain_cell(results, peer, each, p99)))
    return "\n\n".join(tables)


def _table(results: Results, corner: str, workloads: Sequence[Workload], cell: Cell) -> str:
    peers = results.peers()
    rows = [[corner, *(results.label(peer) for peer in peers)]]
    for workload in workloads:
        cells = [cell(peer, workload) + _mark(results, peer, workload) for peer in peers]
        rows.append([workload.title, *cells])
    return markdown_table(rows)


def _mark(results: Results, peer: str, workload: Workload) -> str:
    return DISTURBED if results.is_disturbed(peer, workload.key) else ""


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head; all columns but the first are right-aligned."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---|" + "---:|" * (len(rows[0]) - 1))
    return "\n".join(lines)


def _rate_cell(results: Results, peer: str, workload: Workload, value: Callable[[Run], float]) -> str:
    found = results.of_runs(peer, workload.key, value)
    if found is None:
        return ABSENT
    text = f"**{human(found.median)}**"
    if workload.kind is not Kind.REQUESTS:
        text += f", {found.median * workload.size_bytes / 1e6:.0f} MB/s"
    return text + spread(found, human) + _ratio(results, peer, workload, value)


def _plain_cell(results: Results, peer: str, workload: Workload, value: Callable[[Run], float]) -> str:
    found = results.of_runs(peer, workload.key, value)
    return ABSENT if found is None else f"{found.median:.2f}{_ratio(results, peer, workload, value)}"


def _ratio(results: Results, peer: str, workload: Workload, value: Callable[[Run], float]) -> str:
    own, reference = (results.of_runs(name, workload.key, value) for name in (peer, REFERENCE))
    if peer == REFERENCE or own is None or reference is None or reference.median == 0:
        return ""
    return f" ({own.median / reference.median:.2f}x)"


def _latency_table(results: Results, kind: Kind, workloads: Sequence[Workload]) -> str:
    which = "received_us" if kind is Kind.END_TO_END else "acknowledged_us"
    rows = [
        ["ms: " + " / ".join(shown for _, shown in PERCENTILES), *(results.label(each) for each in results.peers())]
    ]
    for workload in workloads:
        cells = [_latency_cell(results, peer, workload, which) for peer in results.peers()]
        rows.append([workload.title, *cells])
    return markdown_table(rows)


def _latency_cell(results: Results, peer: str, workload: Workload, which: str) -> str:
    figures = [results.of_runs(peer, workload.key, percentile_ms(which, name)) for name, _ in PERCENTILES]
    texts = [f"{each.median:.2f}" for each in figures if each is not None]
    if not texts:
        return ABSENT
    ratio = _ratio(results, peer, workload, percentile_ms(which, "p99")).replace("(", "(p99 ")
    return " / ".join(texts) + ratio + _mark(results, peer, workload)


def _start_and_memory(results: Results) -> str:
    rows = [["", *(results.label(peer) for peer in results.peers())]]
    seconds: list[str] = []
    idle: list[str] = []
    peak: list[str] = []
    for peer in results.peers():
        start, rest = results.of_starts(peer, "seconds"), results.of_starts(peer, "idle_bytes")
        highest = results.peak_bytes(peer)
        seconds.append(
            ABSENT if start is None else f"{start.median:.2f} s{spread(start, lambda value: f'{value:.2f}')}"
        )
        idle.append(ABSENT if rest is None else f"{rest.median / MEBIBYTE:.0f} MB")
        peak.append(ABSENT if highest is None else f"{highest.median / MEBIBYTE:.0f} MB")
    rows += [["process start to first acknowledged record", *seconds], ["resident when idle", *idle]]
    rows.append(["resident at its highest under load", *peak])
    return f"## Start and memory\n\nAn empty data directory; formatting it is not counted.\n\n{markdown_table(rows)}"


def _request_costs(results: Results) -> list[str]:
    """Absent when Penstock did not run."""
    costs = results.raw.get("micro")
    if not costs:
        return []
    rows = [["one-partition request", "median, µs", "fastest, µs"]]
    rows += [[cost["name"], f"{cost['median']:.0f}", f"{cost['fastest']:.0f}"] for cost in costs]
    told = (
        "Processor time of everything in Penstock between the socket's read and write, file system included, in one "
        "process without sockets (`python -m bench.micro`; with `--profile 20` it shows where time goes). acks=1."
    )
    return [f"## What a request costs inside Penstock\n\n{told}\n\n{markdown_table(rows)}"]


def _head(results: Results) -> str:
    mode = "a quick run" if results.raw["quick"] else "a full run"
    lines = [
        "# Benchmarks",
        "",
        "Generated by `make bench`; edit `bench/report.py`, not this page. Penstock and its peers on one machine in "
        "one run, taking turns; while one is measured the others are not running.",
        "",
        f"This is {mode} with {results.raw['repetitions']} repetition(s) of everything: medians, and from lowest to "
        "highest in square brackets. Load comes from compiled code (librdkafka "
        f"{results.raw['librdkafka']}, or plain sockets), never from Python. "
        f"Topics have {PARTITIONS} partitions and one replica.",
        "",
        "![Penstock and its peers side by side](img/benchmarks.png)",
        "",
    ]
    lines.append(markdown_table([["machine", ""], *([name, text] for name, text in results.raw["machine"].items())]))
    lines.append("")
    rows = [["", "version", "settings", "what an acknowledgement means"]]
    for name in results.peers():
        peer = results.raw["peers"][name]
        rows.append([f"**{peer['label']}**", peer["version"], peer["settings"], peer["durability"]])
    lines.append("\n".join(markdown_table(rows).replace("---:|", "---|").splitlines()))
    return "\n".join(lines)


def _how(results: Results) -> str:
    lines = [
        "## How to run it again",
        "",
        "```",
        "make bench                                # everything, about half an hour",
    ]
    lines += ["python -m bench --quick                   # a first impression in three minutes"]
    lines += ["python -m bench --only penstock,kafka     # only these", "```", ""]
    lines += ["Raw figures of this run: `bench/results/latest.json`."]
    lines.append("\n" + _noise(results))
    absent = [peer for peer in results.raw["peers"].values() if peer["missing"]]
    lines += [f"\n{peer['label']} did not run: {peer['missing']}" for peer in absent]
    for run in results.failures():
        said = run["failure"].strip().splitlines()[-1:] or ["no message"]
        lines.append(f"\n{results.label(run['peer'])} failed at {run['workload']}: {said[0][:300]}")
    return "\n".join(lines)


def _noise(results: Results) -> str:
    left_out, total = results.left_out()
    return (
        f"A measurement counts as disturbed when other programs took more than {OTHERS_SHARE_MAX:.0%} of the machine's "
        f"processors meanwhile. {left_out} of {total} were left out for that, whatever they showed; "
        f"figures marked \\* have no quieter repetition and are not to be relied on."
    )


def spread(found: Figure, text: Callable[[float], str]) -> str:
    """` [low to high]` where there is more than one repetition."""
    return f" [{text(found.low)} to {text(found.high)}]" if found.repetitions > 1 else ""


def human(value: float) -> str:
    """Three significant digits with K or M."""
    for limit, suffix in ((1e6, " M"), (1e3, " K")):
        if value >= limit:
            return f"{value / limit:.{2 if value < 10 * limit else 1 if value < 100 * limit else 0}f}{suffix}"
    return f"{value:.0f}"
