"""A broker or gateway as a child process: start it, get its addresses, stop it, kill it.

Theory of operation. The child is `python -m penstock server` with two pipes. Over the first (`--ready-fd`) it writes
one JSON line once it serves, with the addresses it is bound to; so a listener may use port 0 and no port has to be
guessed. The second (`--lifeline-fd`) carries nothing: its far end closes when this process exits, however it exits, and
the child then stops. The child has its own session, so Ctrl-C in a terminal reaches only this process, which decides
whether to stop the child.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOG_TAIL_LINES = 30
READY_LINE_BYTES_MAX = 64 * 1024
SERVER_COMMAND = (sys.executable, "-m", "penstock", "server")


class BrokerFailed(Exception):
    """The process did not start or exited; the message ends with the last lines of its log."""

    def __init__(self, what: str, log_tail: str) -> None:
        super().__init__(f"{what}\n--- the last lines of its log ---\n{log_tail}" if log_tail else what)
        self.what = what
        self.log_tail = log_tail


class BrokerProcess:
    """A broker started from a properties file; its log is appended to `log_path`.

    `command` starts it: it must accept `--ready-fd` and `--lifeline-fd`, and `--config` unless there is no properties
    file. `what` is its name in errors.
    """

    def __init__(
        self,
        properties_path: Path | None,
        log_path: Path,
        command: Sequence[str] = SERVER_COMMAND,
        what: str = "the broker",
    ) -> None:
        self.properties_path = properties_path
        self.log_path = log_path
        self.command = tuple(command)
        self.what = what
        self.listeners: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None
        self._ready_line = b""
        self._lifeline: int | None = None
        self._stop_requested = False

    @property
    def pid(self) -> int | None:
        """The process id while the broker is running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """The broker's exit code; None while it runs or before it was started. Negative: the signal's number."""
        return self._process.poll() if self._process is not None else None

    def start(self, timeout_s: float) -> dict[str, str]:
        """Start the broker and return its addresses by listener name once it serves.

        Raises BrokerFailed if the broker exits or is not ready in time; then nothing is left running.
        """
        self.launch()
        return self.wait_until_ready(timeout_s)

    def launch(self) -> None:
        """Start the broker without waiting for it: the nodes of a quorum become ready only together."""
        assert self.pid is None, "the broker is already running"
        self._close_pipes()
        self._ready, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        command = [*self.command]
        if self.properties_path is not None:
            command += ["--config", str(self.properties_path)]
        command += ["--ready-fd", str(ready_write), "--lifeline-fd", str(lifeline_read)]
        self._ready_line = b""
        self._stop_requested = False
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(ready_write, lifeline_read),
                    start_new_session=True,
                )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            os.close(ready_write)
            os.close(lifeline_read)

    def wait_until_ready(self, timeout_s: float) -> dict[str, str]:
        """Wait for a launched broker as `start` does."""
        deadline = time.monotonic() + timeout_s
        try:
            while not self.poll_ready(0.1):
                if time.monotonic() >= deadline:
                    raise BrokerFailed(f"{self.what} was not ready within {timeout_s:g} seconds", self.log_tail())
        except BaseException:
            self.kill()
            raise
        return self.listeners

    def poll_ready(self, timeout_s: float = 0.0) -> bool:
        """Whether a launched broker serves by now, waiting at most `timeout_s`. Raises BrokerFailed if it exited."""
        while self._ready is not None:
            readable, _, _ = select.select([self._ready], [], [], timeout_s)
            if not readable:
                return False
            chunk = os.read(self._ready, READY_LINE_BYTES_MAX)
            if not chunk:
                assert self._process is not None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=5)
                raise BrokerFailed(f"{self.what} did not start ({self.describe_exit()})", self.log_tail())
            self._ready_line += chunk
            if self._ready_line.endswith(b"\n"):
                message: dict[str, Any] = json.loads(self._ready_line)
                self.listeners = {str(name): str(address) for name, address in message["listeners"].items()}
                os.close(self._ready)
                self._ready = None
        return True

    def describe_exit(self) -> str:
        """How the broker exited, in words."""
        code = self.exit_code
        if code is None:
            return "still running"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the broker's log."""
        try:
            text = self.log_path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the broker to exit by itself; returns its exit code, or None if it still runs after `timeout_s`."""
        assert self._process is not None, "the broker was never started"
        try:
            return self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Shut the broker down with SIGTERM; True if it exited cleanly, False if it had to be killed."""
        if self.pid is not None:
            self.terminate()
            self.wait(timeout_s)
        clean = self.exit_code == 0
        self.kill()
        return clean

    def terminate(self) -> None:
        """Send SIGTERM and return at once; a paused broker is resumed so that it handles the signal."""
        if self._process is not None and self._process.poll() is None:
            # A second SIGTERM might hit a process that has already removed its signal handlers.
            if not self._stop_requested:
                self._process.terminate()
            self._stop_requested = True
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash would. Does nothing if it is not running."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
        self._close_pipes()

    def pause(self) -> None:
        """Suspend the broker with SIGSTOP: its connections stay open and nothing is answered."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused broker."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def _close_pipes(self) -> None:
        for descriptor in (self._ready, self._lifeline):
            if descriptor is not None:
                os.close(descriptor)
        self._ready = self._lifeline = None
