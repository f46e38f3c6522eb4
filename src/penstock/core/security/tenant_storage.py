"""How much a tenant's logs hold, as one broker knows it, and whether more may be appended.

Every partition counts once, where it is led. A broker knows what it leads itself, and from time to time learns what the
others lead; in between it counts what it has appended itself. So one broker alone never exceeds a limit, and several
exceed it at most by what the others append between two rounds of questions.

Leaderships move. A partition that moved during a round may be reported by its old and by its new leader, and then there
are more reported partitions than the tenant has: such a round is ignored, since refused writes are lost for producers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Led(NamedTuple):
    """What one broker leads of a tenant."""

    partitions: int = 0
    size_bytes: int = 0
    produce_rate: float = 0.0
    consume_rate: float = 0.0
    refused_batches: int = 0


class StorageMeter:
    """One tenant's bytes, and its limit if it has one."""

    __slots__ = ("_appended_bytes", "_appended_in_round_bytes", "limit_bytes", "measured_bytes", "refused_batches")

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.measured_bytes = 0
        self.refused_batches = 0
        self._appended_bytes = 0
        self._appended_in_round_bytes = 0

    @property
    def used_bytes(self) -> int:
        """What the cluster held in the last round, and what was appended here since."""
        return self.measured_bytes + self._appended_bytes

    @property
    def is_full(self) -> bool:
        """Whether not even a byte may be appended."""
        return self.limit_bytes is not None and self.used_bytes >= self.limit_bytes

    def admit(self, size_bytes: int) -> bool:
        """Whether a batch may be appended; if so, it is counted."""
        if self.limit_bytes is not None and self.used_bytes + size_bytes > self.limit_bytes:
            self.refused_batches += 1
            return False
        self._appended_bytes += size_bytes
        self._appended_in_round_bytes += size_bytes
        return True

    def begin_round(self) -> None:
        """The brokers are being asked; what is appended from now on may be missing in their answers."""
        self._appended_in_round_bytes = 0

    def end_round(self, reports: Iterable[Led], partitions: int) -> bool:
        """Take the sum of the reports, unless they have more partitions than the tenant: then False."""
        known = list(reports)
        if sum(led.partitions for led in known) > partitions:
            return False
        self.measured_bytes = sum(led.size_bytes for led in known)
        self._appended_bytes = self._appended_in_round_bytes
        return True
