"""`python -m bench`: measure, then write docs/benchmarks.md, its picture and bench/results/latest.json."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.support.tools import REPOSITORY, TOOLS_DIRECTORY

from bench import machine
from bench.build import BuildError, build
from bench.figures import Results
from bench.peers import all_peers
from bench.peers.base import Peer
from bench.plot import draw
from bench.report import render
from bench.run import Plan, measure
from bench.workloads import Workload, workloads

PAGE = REPOSITORY / "docs" / "benchmarks.md"
PICTURE = REPOSITORY / "docs" / "img" / "benchmarks.png"
RAW = REPOSITORY / "bench" / "results" / "latest.json"
REPETITIONS = 3


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Penstock next to its peers.")
    parser.add_argument("--quick", action="store_true", help="one short pass: a first impression, under three minutes")
    parser.add_argument("--only", metavar="PEERS", help="names separated by commas, such as penstock,kafka")
    parser.add_argument(
        "--workloads", metavar="PREFIXES", help="only keys that start so, such as requests,consume/100B"
    )
    parser.add_argument("--repetitions", type=int, metavar="N", help=f"passes (default {REPETITIONS}, 1 when quick)")
    parser.add_argument("--patience", type=float, default=5, metavar="S", help="wait so long for a quiet machine")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where brokers keep their data (default under .tools)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write page, picture and figures there instead")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing; draw the report of this raw file")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    # Whoever ends the bench ends the brokers that it started: the exception runs every clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.report is not None:
        raw = json.loads(options.report.read_text())
        write(Results(raw), workloads(raw["quick"]), options.output)
        return 0
    try:
        peers = all_peers(build())
    except BuildError as failure:
        print(f"The load generators could not be built.\n{failure}", file=sys.stderr)
        return 1
    names = options.only.split(",") if options.only else [peer.name for peer in peers]
    unknown = sorted(set(names) - {peer.name for peer in peers})
    if unknown:
        print(
            f"No such peer: {', '.join(unknown)}. There are {', '.join(peer.name for peer in peers)}.", file=sys.stderr
        )
        return 2
    chosen = choose_workloads(options.quick, options.workloads)
    raw = run([peer for peer in peers if peer.name in names], chosen, options)
    if raw is None:
        return 1
    write(Results(raw), chosen, options.output)
    return 0


def choose_workloads(quick: bool, prefixes: str | None) -> list[Workload]:
    wanted = tuple(prefixes.split(",")) if prefixes else ("",)
    return [workload for workload in workloads(quick) if workload.key.startswith(wanted)]


def run(peers: list[Peer], chosen: list[Workload], options: argparse.Namespace) -> dict[str, Any] | None:
    """Everything measured, as it is stored; None when no peer can be run here."""
    described = {}
    for peer in peers:
        missing = peer.missing()
        if missing:
            print(f"{peer.label} will not run: {missing}", file=sys.stderr)
        described[peer.name] = {"label": peer.label, "durability": peer.durability, "missing": missing} | (
            {"version": peer.version(), "settings": peer.settings()} if missing is None else {}
        )
    present = [peer for peer in peers if described[peer.name]["missing"] is None]
    if not present:
        print("None of the peers can be run here.", file=sys.stderr)
        return None
    repetitions = options.repetitions or (1 if options.quick else REPETITIONS)
    parent = options.data or TOOLS_DIRECTORY / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="data-", ignore_cleanup_errors=True) as data:
        where = machine.describe(Path(data))
        measured = measure(Plan(present, chosen, repetitions, options.quick, Path(data), options.patience))
    micro = request_costs() if any(peer.name == "penstock" for peer in present) else []
    about = {"machine": where, "librdkafka": confluent_kafka.libversion()[0], "quick": options.quick}
    return about | {"repetitions": repetitions, "peers": described, "micro": micro} | measured


def request_costs() -> list[dict[str, Any]]:
    """What requests cost inside Penstock, measured in a process of its own; nothing when that fails."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.micro", "--json"], capture_output=True, text=True, cwd=REPOSITORY
    )
    if done.returncode != 0:
        print(f"bench.micro failed:\n{done.stderr}", file=sys.stderr)
        return []
    costs: list[dict[str, Any]] = json.loads(done.stdout)
    return costs


def write(results: Results, chosen: list[Workload], output: Path | None) -> None:
    page, picture, raw = PAGE, PICTURE, RAW
    if output is not None:
        page, picture, raw = output / "benchmarks.md", output / "img" / "benchmarks.png", output / "latest.json"
    for path in (page, picture, raw):
        path.parent.mkdir(parents=True, exist_ok=True)
    raw.write_text(json.dumps(results.raw, indent=1) + "\n")
    page.write_text(render(results, chosen))
    draw(results, picture)
    print(f"Written: {page}, {picture}, {raw}", file=sys.stderr)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
