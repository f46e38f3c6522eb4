"""`python -m bench.cluster`: three nodes of Penstock next to three of Apache Kafka; adds a section to the page.

Three replicas of every partition, two of which must be in sync, `acks=all` from an idempotent producer. All nodes and
the load share one machine, so this shows what replication costs, not what three machines could do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.kafka_broker import free_port
from tests.support.tools import TOOLS_DIRECTORY

from bench import machine, processes
from bench.build import build
from bench.peers.base import LoadError
from bench.peers.clusters import KafkaCluster, PenstockCluster, ThreeNodes
from bench.three_nodes import RAW, WORKLOADS, section
from bench.workloads import Kind, Workload

SETTLE_SECONDS = 3.0


def measure(peers: list[ThreeNodes], repetitions: int, quick: bool, data: Path) -> list[dict[str, Any]]:
    """One entry a measurement, the clusters taking turns."""
    rows = []
    for repetition in range(repetitions):
        for peer in peers if repetition % 2 == 0 else peers[::-1]:
            directory = data / f"{peer.name}-{repetition}"
            try:
                rows += [row | {"peer": peer.name} for row in one_pass(peer, directory, quick)]
            finally:
                peer.stop()
                shutil.rmtree(directory, ignore_errors=True)
    return rows


def one_pass(peer: ThreeNodes, directory: Path, quick: bool) -> list[dict[str, Any]]:
    peer.prepare(directory, free_port())
    began = time.monotonic()
    peer.start(directory, 0)
    peer.first_record()
    started = time.monotonic() - began
    time.sleep(SETTLE_SECONDS)
    idle = sum(processes.resident_bytes(pid) for pid in peer.pids)
    rows: list[dict[str, Any]] = [{"workload": "start", "seconds": started, "idle_bytes": idle}]
    say(f"{peer.label}: first record after {started:.2f} s, {idle >> 20} MB idle")
    warm = Workload(Kind.PRODUCE, 100, "all", count=300_000 if quick else 2_000_000)
    peer.run(warm)
    peer.clean_up(Workload(Kind.CONSUME))
    for workload in WORKLOADS:
        if quick and workload.count:
            workload = Workload(workload.kind, workload.size_bytes, workload.acks, count=workload.count // 8)
        os.sync()
        before = sum(processes.cpu_seconds(pid) for pid in peer.pids)
        try:
            outcome = peer.run(workload)
        except LoadError as failure:
            rows.append({"workload": workload.key, "failure": str(failure)})
            say(f"{peer.label}: {workload.key} FAILED: {failure}")
            continue
        spent = sum(processes.cpu_seconds(pid) for pid in peer.pids) - before
        rows.append({"workload": workload.key, "cpu_seconds": spent, **outcome})
        say(f"{peer.label}: {workload.kind.value} {workload.title}: {headline(rows[-1])}")
        peer.clean_up(workload)
    return rows


def headline(row: dict[str, Any]) -> str:
    latency = row.get("received_us") or row.get("acknowledged_us")
    if latency:
        return f"p50 {latency['p50'] / 1000:.2f} ms, p99 {latency['p99'] / 1000:.2f} ms"
    return f"{row['records'] / row['seconds']:,.0f} records/s, {row['cpu_seconds'] / row['records'] * 1e6:.2f} s CPU/M"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the records, one pass")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--only", help="penstock or kafka")
    parser.add_argument("--output", type=Path, default=RAW, help="where the raw figures go")
    options = parser.parse_args()
    generators = build()
    peers = [peer for peer in (PenstockCluster(generators), KafkaCluster(generators)) if peer.missing() is None]
    peers = [peer for peer in peers if options.only in (None, peer.name)]
    parent = TOOLS_DIRECTORY / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    repetitions = 1 if options.quick else options.repetitions
    with tempfile.TemporaryDirectory(dir=parent, prefix="cluster-", ignore_cleanup_errors=True) as data:
        about = machine.describe(Path(data))
        runs = measure(peers, repetitions, options.quick, Path(data))
    raw = {"machine": about, "repetitions": repetitions, "quick": options.quick, "runs": runs}
    options.output.write_text(json.dumps(raw, indent=1) + "\n")
    if len(peers) > 1:
        print(section(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
