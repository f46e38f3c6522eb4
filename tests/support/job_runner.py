"""Keeps a copy job running that others kill, or that ends by itself, and sees whether it still gets on."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

# A job that committed nothing for so long, with a cluster that was whole, has lost its way and is started again.
STUCK_S = 30.0
LOOK_S = 0.1
RESTART_PAUSE_S = 0.2
LINES_KEPT = 60

TESTS = Path(__file__).parents[1]


class JobRunner:
    """A process that is always started again. `starts`, `kills` and `stuck` count what happened to it."""

    def __init__(self, command: Sequence[str], is_finished: Callable[[int], bool] = lambda _: False) -> None:
        """`is_finished` looks at an exit code and returns whether that was the job's proper end."""
        self._command = list(command)
        self._is_finished = is_finished
        self._process: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._moved_at = time.monotonic()
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.starts = self.kills = self.stuck = 0
        self.finished = threading.Event()

    def start(self) -> None:
        self._watcher.start()

    def kill(self) -> None:
        """End the process at once; it is started again."""
        self.kills += 1
        self._end()

    def stop(self) -> None:
        """End the job for good."""
        self._stopping.set()
        self._end()
        self._watcher.join(10)

    def _end(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def _watch(self) -> None:
        while not self._stopping.is_set() and not self.finished.is_set():
            self.starts += 1
            self._moved_at = time.monotonic()
            process = self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=TESTS
            )
            reader = threading.Thread(target=self._read, args=(process,), daemon=True)
            reader.start()
            while process.poll() is None and not self._stopping.is_set():
                if time.monotonic() - self._moved_at > STUCK_S:
                    self.stuck += 1
                    process.kill()
                time.sleep(LOOK_S)
            if self._stopping.is_set():
                process.kill()
            if self._is_finished(process.wait()):
                self.finished.set()
            reader.join(10)
            self._stopping.wait(RESTART_PAUSE_S)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())
                if line.startswith("committed") or '"progress"' in line:
                    self._moved_at = time.monotonic()
