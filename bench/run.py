"""Carries the measurements out: pass after pass, each peer alone on the machine, the peers taking turns."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kafka_broker import free_port

from bench import processes
from bench.peers.base import LoadError, Peer
from bench.progress import Progress
from bench.workloads import Kind, Workload

SETTLE_SECONDS = 3.0
QUIET_SECONDS = 0.5
OTHERS_SHARE_TOLD = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run needs to know."""

    peers: Sequence[Peer]
    workloads: Sequence[Workload]
    repetitions: int
    quick: bool
    data: Path
    patience_seconds: float


def measure(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """All passes. Returns `starts` and `runs`, one entry a measurement; a failed one carries `failure`."""
    progress = Progress(plan.repetitions * sum(peer.applies(each) for peer in plan.peers for each in plan.workloads))
    starts: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for repetition in range(plan.repetitions):
        # Whoever goes first meets a cooler machine, so the order turns round.
        order = plan.peers if repetition % 2 == 0 else list(reversed(plan.peers))
        for peer in order:
            directory = plan.data / f"{peer.name}-{repetition}"
            tag = {"peer": peer.name, "repetition": repetition}
            try:
                _await_quiet(plan.patience_seconds)
                starts.append(tag | _start(peer, directory))
                progress.note(f"{peer.label}: first record after {starts[-1]['seconds']:.2f} s; warming up")
                peer.warm_up(plan.quick)
                for workload in plan.workloads:
                    if peer.applies(workload):
                        _await_quiet(plan.patience_seconds)
                        result = _run(peer, workload)
                        runs.append(tag | {"workload": workload.key} | result)
                        progress.step(
                            f"{peer.label}: {workload.kind.value} {workload.title}", _headline(workload, result)
                        )
            except (LoadError, RuntimeError) as failure:
                progress.note(f"{peer.label}: this pass ended early: {failure}")
                runs.append(tag | {"workload": "pass", "failure": str(failure)})
            finally:
                peer.stop()
                shutil.rmtree(directory, ignore_errors=True)
    return {"starts": starts, "runs": runs}


def _await_quiet(patience_seconds: float) -> None:
    """Wait until other programs leave the processors alone, but not longer than that."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        before = processes.machine_busy_seconds()
        time.sleep(QUIET_SECONDS)
        busy = processes.machine_busy_seconds() - before
        if busy < QUIET_SECONDS * (os.cpu_count() or 1) * OTHERS_SHARE_TOLD:
            return


def _start(peer: Peer, directory: Path) -> dict[str, Any]:
    port = free_port()
    peer.prepare(directory, port)
    os.sync()
    client_before, machine_before = processes.load_generator_cpu_seconds(), processes.machine_busy_seconds()
    began = time.monotonic()
    peer.start(directory, port)
    listening = time.monotonic() - began
    peer.first_record()
    seconds = time.monotonic() - began
    ours = processes.cpu_seconds(peer.pid) + processes.load_generator_cpu_seconds() - client_before
    others = max(0.0, processes.machine_busy_seconds() - machine_before - ours)
    time.sleep(SETTLE_SECONDS)
    return {
        "seconds": seconds,
        "listening_seconds": listening,
        "idle_bytes": processes.resident_bytes(peer.pid),
        "others_cpu_share": others / seconds / (os.cpu_count() or 1),
    }


def _run(peer: Peer, workload: Workload) -> dict[str, Any]:
    """One workload with what it cost the broker; a load that fails is an entry too, and the pass goes on."""
    os.sync()
    processes.reset_peak(peer.pid)
    began = time.monotonic()
    broker_before = processes.cpu_seconds(peer.pid)
    client_before, machine_before = processes.load_generator_cpu_seconds(), processes.machine_busy_seconds()
    try:
        outcome = peer.run(workload)
    except LoadError as failure:
        return {"failure": str(failure)}
    elapsed = time.monotonic() - began
    broker = processes.cpu_seconds(peer.pid) - broker_before
    client = processes.load_generator_cpu_seconds() - client_before
    others = max(0.0, processes.machine_busy_seconds() - machine_before - broker - client)
    costs = {
        "broker_cpu_seconds": broker,
        "peak_bytes": processes.peak_resident_bytes(peer.pid),
        "others_cpu_share": others / elapsed / (os.cpu_count() or 1),
    }
    peer.clean_up(workload)
    return outcome | costs


def _headline(workload: Workload, result: dict[str, Any]) -> str:
    if "failure" in result:
        return f"FAILED: {result['failure'].splitlines()[-1] if result['failure'] else ''}"
    others = (
        f"  (others used {result['others_cpu_share']:.0%} of the machine)" if result["others_cpu_share"] > 0.1 else ""
    )
    if workload.kind in (Kind.LATENCY, Kind.END_TO_END):
        latency = result.get("received_us") or result["acknowledged_us"]
        return f"p50 {latency['p50'] / 1000:.2f} ms, p99 {latency['p99'] / 1000:.2f} ms{others}"
    if workload.kind is Kind.REQUESTS:
        return f"{result['requests_per_second']:,.0f} requests/s{others}"
    return f"{result['records'] / result['seconds']:,.0f} records/s{others}"
