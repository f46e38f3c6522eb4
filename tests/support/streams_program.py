"""A program with Apache Kafka's own Streams library, for tests: words counted through a repartition topic."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from .kafka_tools import java_command, streams_libraries_of

VERSION = "4.3.1"


class Program:
    """A WordCount in a process of its own; `lines` are what it printed."""

    def __init__(
        self, servers: str, application: str, source: str, sink: str, state: Path, settings: Mapping[str, str]
    ) -> None:
        wanted = {"state.dir": str(state), **settings}
        program = Path(__file__).with_name("WordCount.java")
        command = java_command(
            str(program),
            *(servers, application, source, sink),
            *(f"{name}={value}" for name, value in wanted.items()),
            libraries=streams_libraries_of(VERSION),
        )
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines += (line.rstrip() for line in iter(self._process.stdout.readline, ""))

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def tasks(self, role: str = "a") -> set[str]:
        """The tasks that it has now, active or (`s`) standby."""
        told = [line.split()[1:] for line in self.lines if line.startswith("tasks")]
        return {task[1:] for task in (told[-1] if told else ()) if task.startswith(role)}

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        with self._process:
            if self.is_running:
                assert self._process.stdin is not None
                self._process.stdin.write("end\n")
                self._process.stdin.flush()
            self._process.wait(60)
            self._reader.join(60)
