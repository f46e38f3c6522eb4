"""Which logs hold files open: never more than the process may, whoever is written to or read."""

from __future__ import annotations

from penstock.storage.log import Log


class OpenLogs:
    """Closes the files of the log that opened some longest ago when one too many opens its own."""

    def __init__(self, logs_max: int) -> None:
        self._logs_max = max(1, logs_max)
        self._open: dict[Log, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, log: Log) -> None:
        """Look after a log from now on; it must not hold files yet."""
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
