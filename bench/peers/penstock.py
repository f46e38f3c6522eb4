"""Penstock itself: `penstock server` of this environment, with the properties that Apache Kafka gets."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from tests.support.kafka_broker import combined_node_properties, free_port, wait_for_port, write_properties

from bench.build import LoadGenerators
from bench.peers.kafka_protocol import KafkaProtocolPeer

STOP_TIMEOUT_SECONDS = 30


class Penstock(KafkaProtocolPeer):
    name = "penstock"
    label = "Penstock"
    durability = (
        "acks=1 from the page cache; acks=all with its single replica waits for fdatasync, shared by all waiters"
    )

    def __init__(self, generators: LoadGenerators) -> None:
        super().__init__(generators)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def missing(self) -> str | None:
        command = [sys.executable, "-m", "penstock", "server", "--help"]
        done = subprocess.run(command, capture_output=True, text=True)
        return None if done.returncode == 0 else f"`penstock server` does not run: {done.stderr.strip()[-300:]}"

    def version(self) -> str:
        return importlib.metadata.version("penstock")

    def settings(self) -> str:
        return f"one process, defaults, CPython {sys.version.split()[0]}"

    def start(self, data: Path, port: int) -> None:
        data.mkdir(parents=True, exist_ok=True)
        config = data / "server.properties"
        write_properties(config, combined_node_properties(data / "log", port, free_port()))
        self._port = port
        log = data / "server.log"
        command = [sys.executable, "-m", "penstock", "server", "--config", str(config)]
        with open(log, "ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_for_port(self._process, port, log)

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
