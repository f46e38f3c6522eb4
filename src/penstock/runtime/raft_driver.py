"""Drives the quorum's state machine over the metadata log on disk.

The order is always the same: what `step` wants persisted is on disk before anything is appended, what is appended is
synced before it counts as committed, and what is committed is replayed into the image before anybody is answered.

Decisions are made one at a time, each against an image that holds everything decided before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.lifecycle.retention import RetentionSettings, plan_retention
from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.core.raft.events import Effects, Election, LeaderChange, QuorumTimes, Started, Stopping, Synced
from penstock.core.raft.messages import LogEnd
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.log_sync import LogSync
from penstock.runtime.metadata_log import (
    SnapshotId,
    check_agreement,
    decode_batches,
    encode_records,
    inspect_log,
    leader_change_batch,
    list_snapshots,
    read_election,
    read_snapshot,
    write_election,
    write_snapshot,
)
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSettings
from penstock.wire.records import split_batches

DIRECTORY = "__cluster_metadata-0"
READ_BYTES = 8 * 1024 * 1024
PENDING_DECISIONS_MAX = 10_000
# The one before the newest stays, with the log from there on, in case the newest is damaged.
SNAPSHOTS_KEPT = 2

Response = TypeVar("Response")
Listener = Callable[[Sequence[Any]], None]

logger = logging.getLogger("penstock.metadata")


class MetadataLogView:
    """The log as the quorum's core sees it. It starts where its snapshot ends."""

    def __init__(self, log: Log, start: LogEnd) -> None:
        self._log = log
        self._start = start

    def end(self) -> LogEnd:
        """Where the log ends."""
        return LogEnd(self._log.end_offset, max(self._start.epoch, self._log.epochs.latest))

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """Where the largest epoch at or below this one ended."""
        found = self._log.epochs.end_offset_for(epoch, self._log.end_offset)
        return self._start if found.epoch < 0 else LogEnd(found.end_offset, found.epoch)

    def start(self) -> LogEnd:
        """Where the log starts."""
        return self._start

    def snapshot(self) -> LogEnd:
        """Where the newest snapshot ends."""
        return self._start


class RaftDriver:
    """The metadata log of this node, and the image that its committed records make."""

    def __init__(
        self,
        env: Env,
        directory: Path,
        node_id: int,
        voters: tuple[int, ...],
        snapshot_bytes: int,
        settings: LogSettings,
    ) -> None:
        self._env = env
        self._directory = directory / DIRECTORY
        self._snapshot_bytes = snapshot_bytes
        self._settings = replace(settings, file_delete_delay_ms=0)
        self._node_id = node_id
        self._voters = voters
        self._listeners: list[Listener] = []
        self._queue: deque[tuple[Callable[[Image], Result[Any]], asyncio.Future[Any]]] = deque()
        self._deciding = False
        self._failed: StorageError | None = None
        self._snapshot_offset = 0
        self._bytes_since_snapshot = 0
        self.image = Image()
        self.log: Log
        self.quorum: Quorum
        self._sync: LogSync
        self._applied_offset = 0

    async def start(self) -> None:
        """Open the log, replay it, and lead the quorum. Raises DamagedMetadata rather than guess."""
        filesystem = self._env.filesystem
        filesystem.make_directory(self._directory)
        filesystem.sync_directory(self._directory.parent)
        election, snapshot = self._check_files()
        now_ms = self._env.now_ms()
        self.log = Log.open(filesystem, self._directory, self._settings, recovery_point=0, clean=False, now_ms=now_ms)
        self._sync = LogSync(self._env, self.log, self._on_failure)
        self._replay_log()
        view = MetadataLogView(self.log, snapshot)
        self.quorum = Quorum(
            self._node_id, VoterSet.of_ids(self._voters), election, view, QuorumTimes(), self._env.random
        )
        self._carry_out(self.quorum.step(Started(), now_ms))
        await self._sync.durable(self.log.end_offset)
        self._advance()

    def _check_files(self) -> tuple[Election, LogEnd]:
        """Look at everything before anything is changed; takes the newest snapshot into the image."""
        filesystem, directory = self._env.filesystem, self._directory
        snapshots = list_snapshots(filesystem, directory)
        newest = snapshots[-1] if snapshots else None
        election = read_election(filesystem, directory)
        extent = inspect_log(filesystem, directory)
        check_agreement(directory, extent, newest, election)
        if newest is not None:
            for record in read_snapshot(filesystem, directory, newest):
                self.image.replay(record)
            self._applied_offset = self._snapshot_offset = newest.end_offset
        start = LogEnd(newest.end_offset, newest.epoch) if newest is not None else LogEnd(0, 0)
        return election or Election(), start

    def on_commit(self, listener: Listener) -> None:
        """Have `listener` called with every batch of records once it is committed and in the image."""
        self._listeners.append(listener)

    def decide(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:
        """Ask the controller: `decision` sees the image, its records are committed, then its response is the result."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            answer.set_exception(self._failed)
        elif len(self._queue) >= PENDING_DECISIONS_MAX:
            answer.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT, "the controller has too much to do; try again"))
        else:
            self._queue.append((decision, answer))
            self._decide_next()
        return answer

    async def stop(self) -> None:
        """Lead no longer; close the log."""
        self.quorum.step(Stopping(), self._env.now_ms())
        for _, answer in self._queue:
            if not answer.done():
                answer.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "the controller is shutting down"))
        self._queue.clear()
        if self._failed is None:
            await self._sync.durable(self.log.end_offset)
            self.log.close(clean=True)

    # Deciding.

    def _decide_next(self) -> None:
        while self._queue and not self._deciding:
            decision, answer = self._queue.popleft()
            if answer.done():
                continue
            try:
                records, response = decision(self.image)
                if records:
                    self._append_records(records)
            except (ApiError, AssertionError, ValueError, KeyError) as error:
                answer.set_exception(error)
                continue
            if not records:
                answer.set_result(response)
                continue
            self._deciding = True
            durable = self._sync.durable(self.log.end_offset)
            durable.add_done_callback(lambda done, a=answer, r=response: self._decided(done, a, r))  # type: ignore[misc]

    def _decided(self, durable: asyncio.Future[None], answer: asyncio.Future[Any], response: Any) -> None:
        self._deciding = False
        if durable.cancelled():
            return
        error = durable.exception()
        if error is not None:
            if not answer.done():
                answer.set_exception(error)
            return
        try:
            self._advance()
        finally:
            # Whatever a listener made of it, the change is committed.
            if not answer.done():
                answer.set_result(response)
            self._decide_next()

    def _append_records(self, records: Sequence[Any]) -> None:
        data = encode_records(records, self.log.end_offset, self.quorum.epoch, self._env.now_ms())
        self._append_batch(data)

    def _append_batch(self, data: bytes) -> None:
        headers = [header for _, header in split_batches(data, len(data))]
        self.log.append(headers, data, self._env.now_ms())
        self._bytes_since_snapshot += len(data)

    def _carry_out(self, effects: Effects) -> None:
        if effects.persist is not None:
            write_election(self._env.filesystem, self._directory, effects.persist, self._voters)
        if effects.append is not None:
            self._open_epoch(effects.append)

    def _open_epoch(self, change: LeaderChange) -> None:
        offset = self.log.end_offset
        batch = leader_change_batch(change.epoch, change.leader_id, change.voters, offset, self._env.now_ms())
        self._append_batch(batch)

    # Applying.

    def _advance(self) -> None:
        effects = self.quorum.step(Synced(self.log.flushed_offset), self._env.now_ms())
        if effects.committed is not None:
            self._replay_log()
            if self._bytes_since_snapshot >= self._snapshot_bytes:
                self._bytes_since_snapshot = 0
                try:
                    self.take_snapshot()
                except StorageError as error:
                    logger.error("cannot write a metadata snapshot, the log is kept longer instead: %s", error)

    def _replay_log(self) -> None:
        """Take everything between what was applied and the end of the log into the image."""
        while self._applied_offset < self.log.end_offset:
            data = self.log.read(self._applied_offset, READ_BYTES, offset_max=None, minimum_one_batch=True).read()
            for next_offset, records in decode_batches(data, self._directory):
                if next_offset <= self._applied_offset:
                    continue
                for record in records:
                    self.image.replay(record)
                self._applied_offset = next_offset
                if records:
                    for listener in self._listeners:
                        listener(records)

    def take_snapshot(self) -> None:
        """Write the image to a snapshot, and let go of the log before the oldest snapshot that is kept.

        A crash between any two of the steps leaves more than is needed, never less.
        """
        snapshot = SnapshotId(self._applied_offset, max(0, self.log.epochs.latest))
        if snapshot.end_offset <= self._snapshot_offset:
            return
        filesystem = self._env.filesystem
        write_snapshot(filesystem, self._directory, snapshot, self.image.snapshot(), self._env.now_ms())
        logger.info("wrote metadata snapshot %s", snapshot.file_name)
        self._snapshot_offset = snapshot.end_offset
        self.log.roll(self._env.now_ms())
        snapshots = list_snapshots(filesystem, self._directory)
        for old in snapshots[:-SNAPSHOTS_KEPT]:
            filesystem.unlink(self._directory / old.file_name)
        if len(snapshots) >= SNAPSHOTS_KEPT:
            self._let_go_before(snapshots[-SNAPSHOTS_KEPT].end_offset)

    def _let_go_before(self, offset: int) -> None:
        """Delete the segments that end before `offset`."""
        now_ms = self._env.now_ms()
        self.log.advance_start_offset(offset)
        plan = plan_retention(
            self.log.segment_facts(),
            RetentionSettings(delete=False),
            now_ms,
            high_watermark=self.quorum.high_watermark,
            log_start_offset=offset,
        )
        self.log.delete_segments(plan, now_ms)
        self.log.reap(now_ms)

    def _on_failure(self, error: StorageError) -> None:
        self._failed = error
        logger.critical("the metadata log failed; this node decides nothing any more: %s", error)
        for _, answer in self._queue:
            if not answer.done():
                answer.set_exception(error)
        self._queue.clear()
