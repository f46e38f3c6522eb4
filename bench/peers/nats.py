"""NATS JetStream: one file-backed stream, loaded by the `nats bench` command of NATS's own command line."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

from tests.support.tools import TOOLS_DIRECTORY, exclusive

from bench.peers.base import LoadError, Outcome, Peer, run_program
from bench.peers.process import ServerProcess
from bench.workloads import Kind, Workload

COMMAND_LINE_VERSION = "v0.1.6"
COMMAND_LINE_PACKAGE = "github.com/nats-io/natscli"
BUILD_TIMEOUT_SECONDS = 600
ASYNC_PUBLISHES = 5_000
COUNT_MAX = 500_000
REQUESTS_A_SECOND_GUESS = 20_000


def find_command_line() -> Path | None:
    """`nats` on PATH, or built once from the Go module proxy where Go is installed, or None."""
    found = shutil.which("nats")
    built = TOOLS_DIRECTORY / "natscli" / "nats"
    if found or built.exists() or not shutil.which("go"):
        return Path(found) if found else built if built.exists() else None
    with exclusive("natscli"):
        built.parent.mkdir(exist_ok=True)
        requirement = f"require {COMMAND_LINE_PACKAGE} {COMMAND_LINE_VERSION}"
        (built.parent / "go.mod").write_text(f"module bench\n\ngo 1.22.0\n\n{requirement}\n")
        (built.parent / "tools.go").write_text(f'package tools\n\nimport _ "{COMMAND_LINE_PACKAGE}/nats"\n')
        command = ["go", "build", "-mod=mod", "-o", str(built), f"{COMMAND_LINE_PACKAGE}/nats"]
        subprocess.run(command, cwd=built.parent, capture_output=True, timeout=BUILD_TIMEOUT_SECONDS)
    return built if built.exists() else None


class Nats(Peer):
    name = "nats"
    label = "NATS JetStream"
    durability = "written to a file, not synced (every two minutes by default)"

    def __init__(self) -> None:
        self._server = ServerProcess()
        self._directory = Path()

    def missing(self) -> str | None:
        if not shutil.which("nats-server"):
            return "no nats-server on PATH; Debian's package is nats-server"
        if find_command_line() is None:
            return f"no `nats` on PATH, and it could not be built: go install {COMMAND_LINE_PACKAGE}/nats@latest"
        return None

    def version(self) -> str:
        return run_program(["nats-server", "--version"]).split()[-1].removeprefix("v")

    def settings(self) -> str:
        return (
            f"one stream in a file; `nats bench` with one publisher that waits after every {ASYNC_PUBLISHES:,} "
            "asynchronous publishes, one ordered consumer; one-record requests are its synchronous publishers"
        )

    def start(self, data: Path, port: int) -> None:
        self._directory = data
        data.mkdir(parents=True, exist_ok=True)
        config = data / "nats.conf"
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{data}" }}\n')
        self._server.start(["nats-server", "-c", str(config)], data, port)

    def first_record(self) -> None:
        self._bench(1, 100, "--pub", "1", "--syncpub")
        self._nats("stream", "rm", "benchstream", "-f")

    @property
    def pid(self) -> int:
        return self._server.pid

    def stop(self) -> None:
        self._server.stop()

    def applies(self, workload: Workload) -> bool:
        if workload.kind is Kind.PRODUCE:
            return workload.acks == "1" and not workload.batch_bytes
        return workload.kind in (Kind.CONSUME, Kind.REQUESTS)

    def run(self, workload: Workload) -> Outcome:
        count, size = min(workload.count, COUNT_MAX), workload.size_bytes
        if workload.kind is Kind.PRODUCE:
            return self._bench(count, size, "--pub", "1", "--pubbatch", str(ASYNC_PUBLISHES))
        if workload.kind is Kind.CONSUME:
            return self._bench(count, size, "--sub", "1")
        count = REQUESTS_A_SECOND_GUESS * workload.seconds // 2
        return self._bench(count, size, "--pub", str(workload.connections), "--syncpub")

    def clean_up(self, workload: Workload) -> None:
        if workload.kind is not Kind.PRODUCE:
            self._nats("stream", "rm", "benchstream", "-f")

    def _bench(self, count: int, size: int, *flags: str) -> Outcome:
        figures = self._directory / "figures.csv"
        figures.unlink(missing_ok=True)
        self._nats(
            *("bench", "bench", "--js", "--no-progress", "--maxbytes", "20GB", "--msgs", str(count)),
            *("--size", str(size), "--csv", str(figures), *flags),
        )
        rows = list(csv.DictReader(figures.read_text().splitlines()))
        if not rows:
            raise LoadError("nats bench reported nothing")
        seconds = max(float(row["DurationSecs"]) for row in rows)
        return {"records": count, "seconds": seconds, "requests_per_second": count / seconds}

    def _nats(self, *words: str) -> str:
        command_line = find_command_line()
        assert command_line is not None, "missing() said so"
        return run_program([str(command_line), "-s", f"nats://127.0.0.1:{self._server.port}", *words])
