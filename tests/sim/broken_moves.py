"""Ways to break moves between data directories on purpose; see `broken`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.core.metadata import brokers
from penstock.node import directories as node_directories
from penstock.runtime.replication.directory_moves import DirectoryMoves, Move
from penstock.runtime.replication.fetcher import ReplicaFetcher
from penstock.storage.metadata_files import BootMarker


@contextmanager
def swap_before_the_rest() -> Iterator[None]:
    """Let a copy take the replica's place that lacks what was appended since the controller was told."""
    right = DirectoryMoves._swap

    def swap(moves: DirectoryMoves, move: Move) -> Callable[[], None] | None:
        assert move.future is not None
        log, end_offset = move.partition.log, move.partition.log.end_offset
        log.end_offset = move.future.log.end_offset
        try:
            return right(moves, move)
        finally:
            log.end_offset = end_offset

    with patch.object(DirectoryMoves, "_swap", swap):
        yield


@contextmanager
def follow_what_is_gone() -> Iterator[None]:
    """Put a partition among those to be fetched again although its directory failed while its records were appended."""
    with patch.object(ReplicaFetcher, "_is_followed", lambda *_: True):
        yield


@contextmanager
def trust_a_disk_that_failed() -> Iterator[None]:
    """Come back with a directory that failed as if it had kept everything, because the machine stayed up."""
    right = node_directories.read_boot_marker

    def read(*args: Any) -> BootMarker | None:
        marker = right(*args)
        return marker._replace(failed=()) if marker is not None else None

    with patch.object(node_directories, "read_boot_marker", read):
        yield


@contextmanager
def distrust_intact_disks() -> Iterator[None]:
    """Take everything that a broker has for incomplete when one of its directories failed."""
    with patch.object(brokers, "intact_directories", lambda *_: ()):
        yield


MOVING_VARIANTS = (swap_before_the_rest, follow_what_is_gone, distrust_intact_disks)
FAILING_VARIANTS = (trust_a_disk_that_failed,)
