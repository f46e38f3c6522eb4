"""A gateway in a process of its own, on free ports, next to a test's broker."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


class GatewayProcess:
    """`rest` and `registry` are its addresses once it is started; `log()` is what it has logged."""

    def __init__(self, bootstrap_servers: str, *arguments: str) -> None:
        self._arguments = arguments
        self._bootstrap = bootstrap_servers
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._lifeline = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.rest = ""
        self.registry = ""

    def start(self) -> Self:
        ready, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "penstock", "gateway", "-b", self._bootstrap, "--port", "0"]
        command += ["--registry-port", "0", "--ready-fd", str(ready_write), "--lifeline-fd", str(lifeline_read)]
        self._process = subprocess.Popen(
            [*command, *self._arguments],
            stdout=self._log,
            stderr=self._log,
            pass_fds=(ready_write, lifeline_read),
            start_new_session=True,
        )
        os.close(ready_write)
        os.close(lifeline_read)
        readable, _, _ = select.select([ready], [], [], START_TIMEOUT_S)
        line = os.read(ready, 65536) if readable else b""
        os.close(ready)
        if not line:
            self.kill()
            raise AssertionError(f"the gateway did not start:\n{self.log()}")
        addresses = json.loads(line)["listeners"]
        self.rest, self.registry = addresses.get("rest", ""), addresses["registry"]
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._log.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
