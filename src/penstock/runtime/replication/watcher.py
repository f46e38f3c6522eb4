"""The listener interface for changes of a partition."""

from __future__ import annotations

from typing import Protocol

# More bytes than any fetch waits for: every parked fetch must look again.
EVERYTHING = 2**62


class Watcher(Protocol):
    """Follows a partition on behalf of a follower."""

    def grown(self, size_bytes: int) -> None:
        """Bytes were appended."""

    def moved(self) -> None:
        """The high watermark or the in-sync replicas changed."""

    def changed(self) -> None:
        """The log start offset moved, or this broker no longer leads: parked fetches must look again."""
