"""A gateway with the console in a process of its own, on free ports."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
SCRIPT = Path(__file__).with_name("serve_console.py")


class ConsoleProcess:
    """`address` is where the REST side listens; `log()` is what it has logged."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = bootstrap_servers
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._lifeline = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        ready, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        command = [sys.executable, str(SCRIPT), "-b", self._bootstrap, "--port", "0", "--registry-port", "0"]
        self._process = subprocess.Popen(
            [*command, "--ready-fd", str(ready_write), "--lifeline-fd", str(lifeline_read)],
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
            self.stop()
            log = self.log()
            self._log.close()
            raise AssertionError(f"the gateway did not start:\n{log}")
        self.address = json.loads(line)["rest"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._log.close()

    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
