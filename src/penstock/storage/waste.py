"""Files that a log no longer needs: renamed at once, so that a crash cannot bring them back, and removed later, so that
whoever still reads them can finish.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.storage.names import DELETED_SUFFIX
from penstock.storage.partition_files import PartitionFiles


class Waste:
    """What one log has thrown away, in the order in which it may be removed."""

    __slots__ = ("_batches", "_home")

    def __init__(self, home: PartitionFiles) -> None:
        self._home = home
        self._batches: list[tuple[int, list[str]]] = []

    def throw(self, names: Iterable[str], due_ms: int) -> None:
        """Give these files their last name; those that don't exist are passed over."""
        thrown = [name + DELETED_SUFFIX for name in names if self._home.rename(name, name + DELETED_SUFFIX)]
        self._batches.append((due_ms, thrown))

    def reap(self, now_ms: int) -> int:
        """Remove what is due; returns how many files that were."""
        count = 0
        while self._batches and self._batches[0][0] <= now_ms:
            for name in self._batches.pop(0)[1]:
                self._home.unlink(name)
                count += 1
        return count
