"""Penstock itself: `penstock server` of this environment, with the properties that Apache Kafka gets."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from tests.support.kafka_broker import combined_node_properties, free_port, write_properties

from bench.build import LoadGenerators
from bench.peers.kafka_protocol import KafkaProtocolPeer
from bench.peers.process import ServerProcess


class Penstock(KafkaProtocolPeer):
    name = "penstock"
    label = "Penstock"
    durability = "acks=1 from the page cache; acks=all with its one replica waits for fdatasync, shared by all waiters"

    def __init__(self, generators: LoadGenerators) -> None:
        super().__init__(generators)
        self._server = ServerProcess()

    def missing(self) -> str | None:
        command = [sys.executable, "-m", "penstock", "server", "--help"]
        done = subprocess.run(command, capture_output=True, text=True)
        return None if done.returncode == 0 else f"`penstock server` does not run: {done.stderr.strip()[-300:]}"

    def version(self) -> str:
        return importlib.metadata.version("penstock")

    def settings(self) -> str:
        return f"one process, defaults, CPython {sys.version.split()[0]}"

    def prepare(self, data: Path, port: int) -> None:
        data.mkdir(parents=True, exist_ok=True)
        write_properties(data / "server.properties", combined_node_properties(data / "log", port, free_port()))

    def start(self, data: Path, port: int) -> None:
        command = [sys.executable, "-m", "penstock", "server", "--config", str(data / "server.properties")]
        self._server.start(command, data, port)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def pid(self) -> int:
        return self._server.pid

    def stop(self) -> None:
        self._server.stop()
