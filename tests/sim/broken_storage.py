"""Mutations of how failing disks, damaged files and lost answers are handled; see `broken`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.core.replica.fetch_session import SessionCache
from penstock.core.replica.producer_state import ProducerState
from penstock.runtime.logs.checkpoints import CheckpointWriter
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import StorageError
from penstock.storage.segment_check import SegmentChecker


@contextmanager
def drop_refused_logs_from_checkpoints() -> Iterator[None]:
    """Write checkpoints without the logs that could not be opened, and do not report these."""
    right = CheckpointWriter.write

    def write(writer: Any) -> Any:
        directory = writer._directory
        for offsets in writer._wanted().values():
            for name in offsets.keys() - directory.partitions - directory.futures.keys():
                del offsets[name]
        return right(writer)

    with (
        patch.object(CheckpointWriter, "write", write),
        patch.object(Partitions, "_tell_unopened", lambda *_: None),
    ):
        yield


@contextmanager
def cut_durable_records() -> Iterator[None]:
    """Take damage before the recovery point for a torn end of the log."""
    with patch.object(SegmentChecker, "_size_to_keep", lambda *_: 0):
        yield


@contextmanager
def keep_sessions_of_closed_connections() -> Iterator[None]:
    """Let the sessions of followers live on when their connections are gone."""
    right = FollowerFetch.fetch

    def fetch(reads: Any, request: Any, api_version: int, connection: Any) -> Any:
        with (
            patch.object(type(connection), "when_closed", lambda *_: None),
            patch.object(FollowerFetch, "_end_former", lambda *_: None),
            patch.object(SessionCache, "close", lambda *_: None),
        ):
            return right(reads, request, api_version, connection)

    with patch.object(FollowerFetch, "fetch", fetch):
        yield


@contextmanager
def age_producers_by_their_records() -> Iterator[None]:
    """Take the time in a producer's records for when it appended them."""
    right = ProducerState.update

    with patch.object(ProducerState, "update", lambda state, header, _=None: right(state, header)):
        yield


@contextmanager
def sync_checkpoints_on_the_loop() -> Iterator[None]:
    """Write checkpoint files on the event loop."""
    right = CheckpointWriter._attempt

    class Blocking:
        def __init__(self, env: Any) -> None:
            self.filesystem = env.filesystem

        async def run_blocking(self, work: Any) -> Any:
            return work()

    async def attempt(writer: Any) -> StorageError | None:
        env, writer._env = writer._env, Blocking(writer._env)
        try:
            return await right(writer)
        finally:
            writer._env = env

    with patch.object(CheckpointWriter, "_attempt", attempt):
        yield


@contextmanager
def fail_directories_without_descriptors() -> Iterator[None]:
    """Take a lack of descriptors for a broken disk."""
    with patch.object(StorageError, "is_passing", property(lambda error: error.is_disk_full)):
        yield


STORAGE_VARIANTS = (
    drop_refused_logs_from_checkpoints,
    cut_durable_records,
    keep_sessions_of_closed_connections,
    age_producers_by_their_records,
    sync_checkpoints_on_the_loop,
    fail_directories_without_descriptors,
)
