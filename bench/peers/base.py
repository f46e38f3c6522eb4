"""What the bench asks of a broker under test."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from bench.workloads import Workload

Outcome = dict[str, Any]
LOAD_TIMEOUT_SECONDS = 300


class LoadError(Exception):
    """A load generator failed; the message is what it said."""


class Peer(ABC):
    """One broker: started on an empty directory, loaded, stopped."""

    name: ClassVar[str]
    label: ClassVar[str]
    durability: ClassVar[str]

    @abstractmethod
    def missing(self) -> str | None:
        """None when it can be run here, else why not."""

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def settings(self) -> str:
        """The settings that matter for the figures, as a reader would want them told."""

    def prepare(self, data: Path, port: int) -> None:  # noqa: B027 - a hook that most need not fill
        """Whatever must happen once before a start and should not count as starting."""

    @abstractmethod
    def start(self, data: Path, port: int) -> None:
        """Start on the data directory; return once it listens."""

    @abstractmethod
    def first_record(self) -> None:
        """Get one record acknowledged: how long after `start` began is the start time that is reported."""

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def stop(self) -> None: ...

    def warm_up(self, quick: bool) -> None:  # noqa: B027 - a hook that most need not fill
        """Load that is not measured, so that compilers and caches have settled."""

    def applies(self, workload: Workload) -> bool:  # noqa: ARG002 - for those who override it
        """Whether the workload makes sense for this broker and its load generator."""
        return True

    @abstractmethod
    def run(self, workload: Workload) -> Outcome:
        """Carry out a workload that applies.

        An outcome has `records` and `seconds`; latencies lie under `acknowledged_us` and `received_us`.
        """

    def clean_up(self, workload: Workload) -> None:  # noqa: B027 - a hook that most need not fill
        """Drop what a workload left, unless the next one reads it."""


def run_load(command: list[str], **options: Any) -> Outcome:
    """Run a load generator that prints one JSON object."""
    done = run_program(command, **options)
    outcome: Outcome = json.loads(done)
    return outcome


def run_program(command: list[str], **options: Any) -> str:
    """Standard output of a program that must succeed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_SECONDS, **options)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{Path(command[0]).name} ran longer than {LOAD_TIMEOUT_SECONDS} s") from None
    if done.returncode != 0:
        raise LoadError((done.stderr.strip() or done.stdout.strip())[-1500:])
    return str(done.stdout)
