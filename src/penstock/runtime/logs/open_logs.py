"""Limits how many logs hold open files to what the process may open."""

from __future__ import annotations

from penstock.storage.log import Log


class OpenLogs:
    """When too many logs have open files, closes the files of the one that opened its first the longest ago."""

    def __init__(self, logs_max: int) -> None:
        self._logs_max = max(1, logs_max)
        self._open: dict[Log, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, log: Log) -> None:
        """Manage a log from now on; it must not hold files yet."""
        log.on_open(lambda: self._note(log))

    def forget(self, log: Log) -> None:
        """The log is closed."""
        self._open.pop(log, None)

    def _note(self, log: Log) -> None:
        if log in self._open:
            return
        self._open[log] = None
        while len(self._open) > self._logs_max:
            longest = next(iter(self._open))
            del self._open[longest]
            longest.close_files()
