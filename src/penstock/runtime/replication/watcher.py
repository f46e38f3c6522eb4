"""Those who keep in step with a partition."""

from __future__ import annotations

from typing import Protocol

# More bytes than anybody waits for: whoever does is to look again.
EVERYTHING = 2**62


class Watcher(Protocol):
    """Whoever keeps in step with a partition for a follower."""

    def grown(self, size_bytes: int) -> None:
        """So many bytes were appended."""

    def moved(self) -> None:
        """The high watermark moved, or others are in sync."""

    def changed(self) -> None:
        """The log's start moved, or this broker leads no longer: whoever waits is to look again."""
