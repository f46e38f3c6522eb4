"""Writes a history while many threads take part in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .operations import NEMESIS, Operation


class Recorder:
    """Entries in the order in which they happened, kept in memory and, given a path, as JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self.operations: list[Operation] = []
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()
        self._file = path.open("w") if path is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def invoke(self, process: int, f: str, value: Any) -> None:
        """An operation starts: called before anything of it can take effect."""
        self._note(process, "invoke", f, value)

    def complete(
        self,
        process: int,
        outcome: str,
        f: str,
        value: Any,
        rebalanced: Iterable[int] = (),
        error: str | None = None,
    ) -> None:
        """An operation ends: called when nothing of it will happen any more, unless its outcome is `info`."""
        self._note(process, outcome, f, value, tuple(rebalanced), error)

    def fault(self, f: str, value: Any) -> None:
        """Something was broken, or mended."""
        self._note(NEMESIS, "info", f, value)

    def _note(
        self,
        process: int | str,
        kind: str,
        f: str,
        value: Any,
        rebalanced: tuple[int, ...] = (),
        error: str | None = None,
    ) -> None:
        with self._lock:
            now = time.monotonic_ns() - self._began
            one = Operation(len(self.operations), process, kind, f, value, now, rebalanced, error)
            self.operations.append(one)
            if self._file is not None:
                self._file.write(one.to_json() + "\n")
