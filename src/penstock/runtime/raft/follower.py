"""Fetches entries from the leader, one request at a time, and appends them to the log.

A fetch reports to the leader how far this log is on disk, so the quorum sends none while entries are not synced. A
response only counts if it belongs to the newest fetch and the log has not changed since. When the leader's log does not
reach back far enough, its snapshot is fetched in pieces, checked, and replaces the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.core.metadata.image import Image
from penstock.core.raft.events import (
    Effects,
    EntriesAppended,
    Event,
    FetchNext,
    QuorumTimes,
    Received,
    RequestFailed,
    Role,
)
from penstock.core.raft.messages import FetchRequest, LogEnd, SnapshotRequest, SnapshotResponse
from penstock.core.raft.quorum import Quorum
from penstock.model.errors import error_name
from penstock.runtime.env import Env
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.peer import PeerLost
from penstock.runtime.raft.applied_image import replay_all
from penstock.runtime.raft.control_records import Control
from penstock.runtime.raft.metadata_files import (
    PART_SUFFIX,
    PENDING_SUFFIX,
    DamagedMetadata,
    SnapshotId,
    check_snapshot,
    decode_batches,
)
from penstock.runtime.raft.metadata_log import MetadataLog, UnfitEntries
from penstock.runtime.raft.transport import Transport
from penstock.runtime.raft.turns import Turns, when_done
from penstock.runtime.raft.wire import EPOCH_ERRORS, RaftReply, RaftSender, RefusedByPeer, snapshot_request
from penstock.storage.files import File, StorageError
from penstock.wire.primitives import MalformedMessage
from penstock.wire.records import CorruptBatch

# After an error that a short wait does not fix.
RETRY_LATER_MS = 1_000
# The leader answers at least twice in this time, even if nothing happens.
CURRENT_MS = 1_000
SNAPSHOT_PIECE_BYTES = 4 * 1024 * 1024

logger = logging.getLogger("penstock.metadata")

Install = Callable[[SnapshotId, list[Control], Image], Awaitable[None]]


class Interrupted(Exception):
    """The transfer of a snapshot failed; the next fetch starts it again."""


class Follower:
    """One node's fetching from the leader."""

    def __init__(
        self,
        env: Env,
        quorum: Quorum,
        log: MetadataLog,
        sync: LogSync,
        transport: Transport,
        times: QuorumTimes,
        sender: Callable[[], RaftSender],
        turns: Turns,
        step: Callable[[Event], asyncio.Future[Effects]],
        entries_taken: Callable[[], None],
        install: Install,
        failed: Callable[[StorageError], None],
    ) -> None:
        self._env = env
        self._quorum = quorum
        self._log = log
        self._sync = sync
        self._transport = transport
        self._times = times
        self._sender = sender
        self._turns = turns
        self._step = step
        self._entries_taken = entries_taken
        self._install = install
        self._failed = failed
        # When the leader last had nothing more for this node.
        self.caught_up_ms = -CURRENT_MS
        self._in_flight: tuple[int, FetchRequest] | None = None
        self._number = 0
        self._retry: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._loading_epoch = -1
        self._closed = False

    @property
    def is_current(self) -> bool:
        """Whether the leader has said of late that this node has everything."""
        return self._env.monotonic_ms() - self.caught_up_ms < CURRENT_MS

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        self._number += 1
        if self._retry is not None:
            self._retry.cancel()
        if self._loading is not None:
            self._loading.cancel()

    def fetch(self, peer_id: int, request: FetchRequest) -> None:
        """Send a fetch; an earlier one no longer counts."""
        if self._closed or self._in_flight == (peer_id, request):
            return
        if self._loading is not None:
            if request.epoch == self._loading_epoch:
                return
            self._loading.cancel()
            self._loading = None
        self._number += 1
        number = self._number
        self._in_flight = (peer_id, request)
        answer = self._transport.fetch(peer_id, request, self._quorum.high_watermark)
        answer.add_done_callback(lambda done: self._answered(number, peer_id, request, done))

    def again(self) -> None:
        """Fetch what comes next, if there is a leader, once the log is synced."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._step(FetchNext())

    def fetch_when_synced(self) -> None:
        """Fetch as soon as all that is in the log now is on disk."""
        if not self._closed:
            self._sync.durable(self._log.log.end_offset).add_done_callback(self._synced)

    def _again_after(self, delay_ms: int) -> None:
        if self._retry is None and not self._closed:
            self._retry = asyncio.get_running_loop().call_later(delay_ms / 1_000, self.again)

    def _answered(self, number: int, peer_id: int, request: FetchRequest, answer: asyncio.Future[object]) -> None:
        if answer.cancelled() or number != self._number:
            return
        self._in_flight = None
        try:
            reply = self._transport.read_reply(answer, request)
        except PeerLost as error:
            logger.debug("the fetch from node %d failed: %s", peer_id, error)
            # A controller that has lost this node in turn gives its leaderships away at once.
            self.caught_up_ms = -CURRENT_MS
            self._step(RequestFailed(peer_id, request))
            self._again_after(self._times.retry_ms)
            return
        except RefusedByPeer as error:
            logger.warning("node %d does not serve the metadata log: %s", peer_id, error)
            self._again_after(RETRY_LATER_MS)
            return
        if request.log_end != self._log.end():
            self.again()
            return
        when_done(
            self._step(Received(peer_id, reply.message)),
            lambda effects: self._follow(number, peer_id, request, reply, effects),
        )

    def _follow(self, number: int, peer_id: int, request: FetchRequest, reply: RaftReply, effects: Effects) -> None:
        """Do what the quorum wants done with an answer, unless another fetch was sent meanwhile."""
        if number != self._number:
            return
        if effects.fetch_snapshot is not None:
            self._loading_epoch = self._quorum.epoch
            self._loading = self._env.spawn(self._load(peer_id, effects.fetch_snapshot), "fetch a metadata snapshot")
        elif effects.truncate_to is not None or (effects.take_entries and request.log_end != self._log.end()):
            self.again()
        elif effects.take_entries:
            self._take(reply)
        else:
            self._again_after(self._times.retry_ms)

    def _take(self, reply: RaftReply) -> None:
        if len(reply.records):
            try:
                self._log.append_fetched(reply.records, self._quorum.epoch)
            except (UnfitEntries, CorruptBatch, MalformedMessage) as error:
                logger.error("node %d sent entries that cannot be appended: %s", self._quorum.leader_id, error)
                self._again_after(RETRY_LATER_MS)
                return
            except StorageError as error:
                if error.is_passing:
                    logger.error("the metadata log cannot be written: %s", error)
                    self._again_after(RETRY_LATER_MS)
                else:
                    self._failed(error)
                return
            self._entries_taken()
        message = reply.message
        self._step(EntriesAppended(getattr(message, "high_watermark", -1)))
        if not len(reply.records):
            self.caught_up_ms = self._env.monotonic_ms()
        self.again()

    def _synced(self, durable: asyncio.Future[None]) -> None:
        if not durable.cancelled() and durable.exception() is None and not self._closed:
            self.again()

    async def _load(self, leader_id: int, snapshot: LogEnd) -> None:
        epoch = self._loading_epoch
        name = SnapshotId(snapshot.offset, snapshot.epoch)
        # One that was cancelled a moment ago may still be finishing.
        part = self._log.directory / f"{name.file_name}.{self._number}{PART_SUFFIX}"
        delay_ms, is_installed = self._times.retry_ms, False
        try:
            file = self._env.filesystem.write_file(part, b"")
            await self._download(leader_id, epoch, snapshot, file)
            controls, image = await self._decode(leader_id, epoch, snapshot, file)
            await self._env.run_blocking(file.sync)
            async with self._turns.hold():
                self._check_still(leader_id, epoch)
                self._env.filesystem.rename(part, self._log.directory / (name.file_name + PENDING_SUFFIX))
                await self._install(name, controls, image)
            delay_ms, is_installed = 0, True
        except PeerLost as error:
            logger.info("snapshot %s could not be fetched: %s", name.file_name, error)
            self._step(RequestFailed(leader_id, SnapshotRequest(epoch, self._quorum.node_id)))
        except (Interrupted, DamagedMetadata) as error:
            logger.warning("snapshot %s could not be fetched: %s", name.file_name, error)
            delay_ms = RETRY_LATER_MS
        except StorageError as error:
            if not error.is_passing:
                self._failed(error)
            logger.error("snapshot %s cannot be written: %s", name.file_name, error)
            delay_ms = RETRY_LATER_MS
        finally:
            if self._loading_epoch == epoch:
                self._loading = None
            if not is_installed:
                self._discard(part)
        self._again_after(delay_ms)

    def _discard(self, part: Path) -> None:
        try:
            self._env.filesystem.unlink(part)
        except StorageError as error:
            logger.warning("cannot remove %s: %s", part, error)

    def _check_still(self, leader_id: int, epoch: int) -> None:
        quorum = self._quorum
        if quorum.role is not Role.FOLLOWER or quorum.epoch != epoch or quorum.leader_id != leader_id:
            raise Interrupted("the leader changed meanwhile")

    async def _download(self, leader_id: int, epoch: int, snapshot: LogEnd, file: File) -> None:
        size = 1
        while file.size < size:
            size, data = await self._piece(leader_id, epoch, snapshot, file.size, SNAPSHOT_PIECE_BYTES)
            if not len(data):
                raise Interrupted(f"it ends at byte {file.size} of {size}")
            await self._env.run_blocking(lambda data=data: file.append(data))  # type: ignore[misc]

    async def _piece(
        self, leader_id: int, epoch: int, snapshot: LogEnd, position: int, size_max: int
    ) -> tuple[int, Any]:
        request = snapshot_request(self._sender(), epoch, snapshot, position, size_max)
        response = await self._transport.ask(leader_id, request)
        try:
            row = response.topics[0].partitions[0]
        except IndexError:
            raise Interrupted(f"it answered {error_name(response.error_code)}") from None
        leader = row.current_leader
        refused = row.error_code != 0
        if row.error_code in EPOCH_ERRORS:
            self._step(Received(leader_id, SnapshotResponse(leader.leader_epoch, leader.leader_id, refused)))
        if refused:
            raise Interrupted(f"it answered {error_name(row.error_code)}")
        self._check_still(leader_id, epoch)
        if row.position != position or (row.snapshot_id.end_offset, row.snapshot_id.epoch) != (
            snapshot.offset,
            snapshot.epoch,
        ):
            raise Interrupted("it answered with a different piece")
        return row.size, row.unaligned_records if row.unaligned_records is not None else b""

    async def _decode(self, leader_id: int, epoch: int, snapshot: LogEnd, file: File) -> tuple[list[Control], Image]:
        """Check and replay the snapshot off the loop, while leader and follower stay in contact."""
        filesystem = self._env.filesystem

        def work() -> tuple[list[Control], Image]:
            image = Image()
            controls = replay_all(image, decode_batches(check_snapshot(filesystem, file.path), file.path))
            return controls, image

        done = self._env.run_blocking(work)
        while True:
            await asyncio.wait([done], timeout=self._times.fetch_ms / 4_000)
            if done.done():
                return done.result()
            await self._piece(leader_id, epoch, snapshot, 0, 1)
