"""A broker as a child process: started, waited for, stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.kafka_broker import wait_for_port

STOP_TIMEOUT_SECONDS = 30


class ServerProcess:
    """One server that listens on one port of 127.0.0.1; its output goes to `server.log` in its data directory."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(
        self, command: Sequence[str], data: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        log = data / "server.log"
        with open(log, "ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        self.port = port
        wait_for_port(self._process, port, log)

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
