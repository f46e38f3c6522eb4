"""Serves other nodes' requests about the quorum: votes, epochs, entries and snapshots, in Kafka's messages.

The answer comes at once unless the disk must keep something first, for this request or for one before it.

A fetch that finds nothing new is parked until the log grows, the high watermark passes what the follower knows, the
leader changes, or its wait time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.raft.events import Effects, Event, Received
from penstock.core.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    LogEnd,
    Message,
    SnapshotRequest,
    SnapshotResponse,
    SyncedEnd,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import VoterEndpoint
from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from penstock.runtime.env import Env
from penstock.runtime.raft.metadata_files import SnapshotId
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.runtime.raft.transport import AddressBook
from penstock.runtime.raft.wire import FETCH_BYTES_MAX, TOPIC, epoch_error
from penstock.storage.files import File, StorageError
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import end_quorum_epoch as end
from penstock.wire.messages import fetch as fetches
from penstock.wire.messages import fetch_snapshot as snapshots
from penstock.wire.messages import vote as votes

T = TypeVar("T")

PARKED_MAX = 10_000
SNAPSHOT_PIECE_BYTES_MAX = 16 * 1024 * 1024


class ParkedFetch:
    """A fetch that waits for new entries or a higher high watermark."""

    __slots__ = ("answer", "listener_name", "message", "row", "size_max", "timer")

    def __init__(self, row: fetches.FetchPartition, message: FetchRequest, size_max: int, listener_name: str) -> None:
        self.row = row
        self.message = message
        self.size_max = size_max
        self.listener_name = listener_name
        self.answer: asyncio.Future[fetches.FetchResponse] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None


class RaftRequests:
    """Answers the quorum's requests."""

    def __init__(
        self,
        env: Env,
        quorum: Quorum,
        log: MetadataLog,
        addresses: AddressBook,
        cluster_id: str | None,
        step: Callable[[Event], asyncio.Future[Effects]],
        failed: Callable[[StorageError], object],
    ) -> None:
        self._env = env
        self._quorum = quorum
        self._log = log
        self._addresses = addresses
        self._cluster_id = cluster_id
        self._step = step
        self._failed = failed
        self._parked: dict[ParkedFetch, None] = {}
        self._open_snapshot: tuple[SnapshotId, File] | None = None

    def _answer(self, event: Event, respond: Callable[[Effects], T]) -> T | asyncio.Future[T]:
        """The response to a request, once the quorum has handled it."""
        handled = self._step(event)
        if handled.done():
            return respond(handled.result())

        async def answer() -> T:
            return respond(await handled)

        return asyncio.ensure_future(answer())

    def vote(
        self, request: votes.VoteRequest, listener_name: str
    ) -> votes.VoteResponse | asyncio.Future[votes.VoteResponse]:
        """Answer a candidate."""
        row, error = self._sole_row(request)
        if row is None:
            return votes.VoteResponse(error_code=error)
        last = LogEnd(row.last_offset, row.last_offset_epoch)
        newest_epoch = row.replica_epoch if row.pre_vote else row.replica_epoch - 1
        if last.offset < 0 or not 0 <= last.epoch <= newest_epoch or row.replica_id < 0:
            error = ErrorCode.INVALID_REQUEST
        elif row.replica_epoch < self._quorum.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not self._is_meant(request.voter_id, row.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            message = VoteRequest(row.replica_epoch, row.replica_id, last, row.pre_vote, row.replica_directory_id)
            return self._answer(
                Received(row.replica_id, message), lambda effects: self._voted(effects.reply, 0, listener_name)
            )
        return self._voted(None, error, listener_name)

    def _voted(self, reply: Message | None, error: int, listener_name: str) -> votes.VoteResponse:
        quorum = self._quorum
        granted = isinstance(reply, VoteResponse) and reply.granted
        answer = votes.VoteResponsePartitionData(0, error, quorum.leader_id, quorum.epoch, granted)
        return votes.VoteResponse(
            0, [votes.VoteResponseTopicData(TOPIC, [answer])], self._leader_endpoint(votes.NodeEndpoint, listener_name)
        )

    def begin_epoch(
        self, request: begin.BeginQuorumEpochRequest, listener_name: str
    ) -> begin.BeginQuorumEpochResponse | asyncio.Future[begin.BeginQuorumEpochResponse]:
        """Learn of a new leader."""
        row, error = self._sole_row(request)
        if row is None:
            return begin.BeginQuorumEpochResponse(error_code=error)
        error = self._check_leader(row.leader_id, row.leader_epoch)
        if error:
            return self._begun(error, listener_name)
        self._learn(row.leader_id, request.leader_endpoints)
        if not self._is_meant(request.voter_id, row.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        message = BeginEpochRequest(row.leader_epoch, row.leader_id)
        return self._answer(Received(row.leader_id, message), lambda _: self._begun(error, listener_name))

    def _begun(self, error: int, listener_name: str) -> begin.BeginQuorumEpochResponse:
        quorum = self._quorum
        answer = begin.BeginQuorumEpochResponsePartitionData(0, error, quorum.leader_id, quorum.epoch)
        return begin.BeginQuorumEpochResponse(
            0,
            [begin.BeginQuorumEpochResponseTopicData(TOPIC, [answer])],
            self._leader_endpoint(begin.NodeEndpoint, listener_name),
        )

    def end_epoch(
        self, request: end.EndQuorumEpochRequest, listener_name: str
    ) -> end.EndQuorumEpochResponse | asyncio.Future[end.EndQuorumEpochResponse]:
        """Learn that a leader resigns."""
        row, error = self._sole_row(request)
        if row is None:
            return end.EndQuorumEpochResponse(error_code=error)
        error = self._check_leader(row.leader_id, row.leader_epoch)
        if error:
            return self._ended(error, listener_name)
        self._learn(row.leader_id, request.leader_endpoints)
        named = [one.candidate_id for one in row.preferred_candidates] or row.preferred_successors
        message = EndEpochRequest(row.leader_epoch, row.leader_id, tuple(named))
        return self._answer(Received(row.leader_id, message), lambda _: self._ended(0, listener_name))

    def _ended(self, error: int, listener_name: str) -> end.EndQuorumEpochResponse:
        quorum = self._quorum
        answer = end.EndQuorumEpochResponsePartitionData(0, error, quorum.leader_id, quorum.epoch)
        return end.EndQuorumEpochResponse(
            0,
            [end.EndQuorumEpochResponseTopicData(TOPIC, [answer])],
            self._leader_endpoint(end.NodeEndpoint, listener_name),
        )

    def _sole_row(self, request: Any) -> tuple[Any, int]:
        """The row about the metadata log, or the error if there is none."""
        if self._is_foreign(request.cluster_id):
            return None, ErrorCode.INCONSISTENT_CLUSTER_ID
        topics = request.topics
        if len(topics) != 1 or topics[0].topic_name != TOPIC or len(topics[0].partitions) != 1:
            return None, ErrorCode.INVALID_REQUEST
        row = topics[0].partitions[0]
        return (row, 0) if row.partition_index == 0 else (None, ErrorCode.INVALID_REQUEST)

    def _is_foreign(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and self._cluster_id is not None and cluster_id != self._cluster_id

    def _is_meant(self, voter_id: int, directory_id: Uuid) -> bool:
        """Whether a request is for this node with its current directory."""
        if voter_id < 0:
            return True
        own = self._quorum.directory_id
        return voter_id == self._quorum.node_id and (ZERO_UUID in (directory_id, own) or directory_id == own)

    def _check_leader(self, leader_id: int, epoch: int) -> int:
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_id < 0 or (epoch == quorum.epoch and quorum.leader_id not in (-1, leader_id)):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.INVALID_REQUEST if leader_id == quorum.node_id else ErrorCode.NONE

    def _learn(self, leader_id: int, endpoints: Any) -> None:
        self._addresses.announced(leader_id, (VoterEndpoint(one.name, one.host, one.port) for one in endpoints))

    def _leader_endpoint(self, make: Callable[[int, str, int], object], listener_name: str) -> list[Any]:
        """The leader's address for a client of a listener: that of its listener of the same name, as in Kafka."""
        leader_id = self._quorum.leader_id
        address = self._addresses.named(leader_id, listener_name) if leader_id >= 0 else None
        return [make(leader_id, *address)] if address is not None else []

    def fetch(
        self, request: fetches.FetchRequest, listener_name: str
    ) -> fetches.FetchResponse | asyncio.Future[fetches.FetchResponse]:
        """Answer a follower, at once or when there is something new."""
        if self._is_foreign(request.cluster_id):
            return fetches.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        topics = request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].partitions[0].partition != 0:
            return fetches.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        if topics[0].topic != TOPIC and topics[0].topic_id != METADATA_TOPIC_ID:
            return fetches.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        row = topics[0].partitions[0]
        replica_id = request.replica_state.replica_id if request.replica_id < 0 else request.replica_id
        if row.fetch_offset < 0 or row.last_fetched_epoch < 0 or row.current_leader_epoch < 0:
            return self._response(self._row(ErrorCode.INVALID_REQUEST), listener_name)
        message = FetchRequest(
            row.current_leader_epoch,
            replica_id,
            SyncedEnd(LogEnd(row.fetch_offset, row.last_fetched_epoch)),
            row.replica_directory_id,
        )
        handled = self._step(Received(replica_id, message))
        if handled.done():
            return self._fetched(request, message, handled.result().reply, listener_name)

        async def answer() -> fetches.FetchResponse:
            response = self._fetched(request, message, (await handled).reply, listener_name)
            return await response if isinstance(response, asyncio.Future) else response

        return asyncio.ensure_future(answer())

    def _fetched(
        self, request: fetches.FetchRequest, message: FetchRequest, reply: Message | None, listener_name: str
    ) -> fetches.FetchResponse | asyncio.Future[fetches.FetchResponse]:
        """Answer a fetch that the quorum has handled."""
        row = request.topics[0].partitions[0]
        if not isinstance(reply, FetchResponse):
            return self._response(self._row(ErrorCode.BROKER_NOT_AVAILABLE), listener_name)
        if reply.is_refused or reply.diverging is not None or reply.snapshot is not None:
            return self._response(self._row_of_reply(message, reply), listener_name)
        size_max = min(request.max_bytes, row.partition_max_bytes, FETCH_BYTES_MAX)
        parked = ParkedFetch(row, message, size_max, listener_name)
        if self._has_news(parked) or request.max_wait_ms <= 0 or len(self._parked) >= PARKED_MAX:
            return self._entries(parked)
        self._park(parked, request.max_wait_ms)
        return parked.answer

    def _park(self, parked: ParkedFetch, wait_ms: int) -> None:
        self._parked[parked] = None
        parked.timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._finish, parked)
        # The caller may disconnect.
        parked.answer.add_done_callback(lambda _: self._forget(parked))

    def _forget(self, parked: ParkedFetch) -> None:
        self._parked.pop(parked, None)
        if parked.timer is not None:
            parked.timer.cancel()

    def wake(self) -> None:
        """Answer the parked fetches that have something new."""
        for parked in [parked for parked in self._parked if self._has_news(parked)]:
            self._finish(parked)

    def _finish(self, parked: ParkedFetch) -> None:
        self._forget(parked)
        if not parked.answer.done():
            parked.answer.set_result(self._entries(parked))

    def _has_news(self, parked: ParkedFetch) -> bool:
        quorum = self._quorum
        return (
            not quorum.is_leader
            or quorum.epoch != parked.message.epoch
            or self._log.log.end_offset > parked.message.log_end.offset
            or quorum.high_watermark > parked.row.high_watermark
        )

    def _entries(self, parked: ParkedFetch) -> fetches.FetchResponse:
        quorum = self._quorum
        name = parked.listener_name
        error = epoch_error(parked.message.epoch, quorum.epoch, leads=quorum.is_leader)
        if error:
            return self._response(self._row(error), name)
        offset = parked.message.log_end.offset
        if offset < self._log.log.start_offset:
            return self._response(self._row(ErrorCode.NONE)._replace(snapshot_id=self._newest_snapshot()), name)
        try:
            records = self._log.read(offset, max(1, parked.size_max))
        except StorageError as failure:
            self._note_read_failure(failure)
            return self._response(self._row(failure.code), name)
        return self._response(self._row(ErrorCode.NONE)._replace(records=records), name)

    def _row_of_reply(self, message: FetchRequest, reply: FetchResponse) -> fetches.PartitionData:
        if reply.is_refused:
            return self._row(epoch_error(message.epoch, reply.epoch, leads=False))
        row = self._row(ErrorCode.NONE)
        if reply.diverging is not None:
            return row._replace(diverging_epoch=fetches.EpochEndOffset(reply.diverging.epoch, reply.diverging.offset))
        return row._replace(snapshot_id=self._newest_snapshot())

    def _newest_snapshot(self) -> fetches.SnapshotId:
        newest = self._log.snapshot()
        return fetches.SnapshotId(newest.offset, newest.epoch)

    def _row(self, error: int) -> fetches.PartitionData:
        quorum = self._quorum
        return fetches.PartitionData(
            error_code=error,
            high_watermark=quorum.high_watermark,
            log_start_offset=self._log.log.start_offset,
            current_leader=fetches.LeaderIdAndEpoch(quorum.leader_id, quorum.epoch),
            aborted_transactions=None,
            records=b"",
        )

    def _response(self, row: fetches.PartitionData, listener_name: str) -> fetches.FetchResponse:
        topic = fetches.FetchableTopicResponse(TOPIC, METADATA_TOPIC_ID, [row])
        endpoints = self._leader_endpoint(fetches.NodeEndpoint, listener_name)
        return fetches.FetchResponse(responses=[topic], node_endpoints=endpoints)

    def fetch_snapshot(
        self, request: snapshots.FetchSnapshotRequest, listener_name: str
    ) -> snapshots.FetchSnapshotResponse | asyncio.Future[snapshots.FetchSnapshotResponse]:
        """Answer with a part of a snapshot."""
        if self._is_foreign(request.cluster_id):
            return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return snapshots.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        topic = request.topics[0]
        asked = topic.partitions[0]
        if topic.name != TOPIC or asked.partition != 0:
            row = self._snapshot_row(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._snapshot_response(topic.name, row, listener_name)
        message = SnapshotRequest(asked.current_leader_epoch, request.replica_id, asked.replica_directory_id)
        return self._answer(
            Received(request.replica_id, message),
            lambda effects: self._snapshot_response(
                TOPIC, self._snapshot_piece(asked, message, effects.reply, request.max_bytes), listener_name
            ),
        )

    def _snapshot_response(self, name: str, row: Any, listener_name: str) -> snapshots.FetchSnapshotResponse:
        answer = snapshots.FetchSnapshotResponseTopicSnapshot(name, [row])
        return snapshots.FetchSnapshotResponse(
            0, 0, [answer], self._leader_endpoint(snapshots.NodeEndpoint, listener_name)
        )

    def _snapshot_piece(self, asked: Any, message: SnapshotRequest, reply: Message | None, size_max: int) -> Any:
        if not isinstance(reply, SnapshotResponse) or reply.is_refused:
            error = epoch_error(message.epoch, self._quorum.epoch, leads=False)
            return self._snapshot_row(asked, error)
        wanted = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if wanted.end_offset == 0 or wanted not in self._log.snapshots:
            return self._snapshot_row(asked, ErrorCode.SNAPSHOT_NOT_FOUND)
        try:
            file = self._snapshot_file(wanted)
            if not 0 <= asked.position < file.size:
                return self._snapshot_row(asked, ErrorCode.POSITION_OUT_OF_RANGE)
            data = file.read(asked.position, max(1, min(size_max, SNAPSHOT_PIECE_BYTES_MAX)))
        except FileNotFoundError:
            return self._snapshot_row(asked, ErrorCode.SNAPSHOT_NOT_FOUND)
        except StorageError as failure:
            self._note_read_failure(failure)
            return self._snapshot_row(asked, failure.code)
        return self._snapshot_row(asked, 0)._replace(size=file.size, position=asked.position, unaligned_records=data)

    def _note_read_failure(self, error: StorageError) -> None:
        """A leader that cannot read what its followers need must make way for one that can."""
        if not error.is_passing:
            self._failed(error)

    def _snapshot_file(self, wanted: SnapshotId) -> File:
        """The open file of a snapshot; the last one requested stays open, even if it is deleted."""
        if self._open_snapshot is None or self._open_snapshot[0] != wanted:
            file = self._env.filesystem.open(self._log.directory / wanted.file_name)
            self._open_snapshot = (wanted, file)
        return self._open_snapshot[1]

    def _snapshot_row(self, asked: Any, error: int) -> snapshots.FetchSnapshotResponsePartitionSnapshot:
        return snapshots.FetchSnapshotResponsePartitionSnapshot(
            index=asked.partition,
            error_code=error,
            snapshot_id=asked.snapshot_id,
            current_leader=snapshots.LeaderIdAndEpoch(self._quorum.leader_id, self._quorum.epoch),
            unaligned_records=b"",
        )
