"""Redis Streams: XADD by redis-benchmark, which comes with Redis."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from bench.peers.base import LoadError, Outcome, Peer, run_program
from bench.peers.process import ServerProcess
from bench.workloads import Kind, Workload

STREAM = "bench"
CONNECTIONS = 4
PIPELINE = 250
COUNT_MAX = 2_000_000
REQUESTS_A_SECOND_GUESS = 50_000


class Redis(Peer):
    name = "redis"
    label = "Redis Streams"
    durability = "appendfsync everysec: up to a second may be lost; rows marked synced: appendfsync always"

    def __init__(self) -> None:
        self._server = ServerProcess()

    def missing(self) -> str | None:
        for program in ("redis-server", "redis-benchmark", "redis-cli"):
            if not shutil.which(program):
                return f"no {program} on PATH; Debian's package is redis-server"
        return None

    def version(self) -> str:
        words = run_program(["redis-server", "--version"]).split()
        return next(word.removeprefix("v=") for word in words if word.startswith("v="))

    def settings(self) -> str:
        return (
            f"append-only file, no snapshots; one stream; redis-benchmark with {CONNECTIONS} connections of {PIPELINE} "
            "pipelined XADDs; it has no reader that moves through a stream"
        )

    def start(self, data: Path, port: int) -> None:
        data.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(data)]
        self._server.start([*command, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""], data, port)

    def first_record(self) -> None:
        self._cli("XADD", STREAM, "*", "value", "first")

    @property
    def pid(self) -> int:
        return self._server.pid

    def stop(self) -> None:
        self._server.stop()

    def applies(self, workload: Workload) -> bool:
        if workload.kind is Kind.PRODUCE:
            return not workload.batch_bytes and (workload.acks == "1" or workload.synced)
        return workload.kind is Kind.REQUESTS

    def run(self, workload: Workload) -> Outcome:
        if workload.kind is Kind.PRODUCE:
            return self._add(workload, min(workload.count, COUNT_MAX), CONNECTIONS, PIPELINE)
        return self._add(workload, REQUESTS_A_SECOND_GUESS * workload.seconds, workload.connections, 1)

    def clean_up(self, workload: Workload) -> None:
        if workload.kind in (Kind.PRODUCE, Kind.REQUESTS):
            self._cli("DEL", STREAM)

    def _add(self, workload: Workload, count: int, connections: int, pipeline: int) -> Outcome:
        self._cli("CONFIG", "SET", "appendfsync", "always" if workload.synced else "everysec")
        command = ["redis-benchmark", "-p", str(self._server.port), "--csv", "-n", str(count)]
        command += ["-c", str(connections), "-P", str(pipeline)]
        command += ["XADD", STREAM, "*", "value", "x" * workload.size_bytes]
        said = run_program(command)
        stored = int(self._cli("XLEN", STREAM))
        if stored < count:
            raise LoadError(f"{count} records sent, {stored} in the stream")
        row = next(csv.DictReader(said.splitlines()))
        rate = float(row["rps"])
        latency = {name: float(row[f"{name}_latency_ms"]) * 1000 for name in ("p50", "p99", "max")}
        return {
            "records": count,
            "seconds": count / rate,
            "requests_per_second": rate,
            "acknowledged_us": latency,
        }

    def _cli(self, *words: str) -> str:
        return run_program(["redis-cli", "-p", str(self._server.port), *words]).strip()
