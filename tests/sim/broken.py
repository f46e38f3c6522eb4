"""Ways to break the cluster on purpose: the simulator must find out each of them.

Each is a context manager that puts a wrong function in the place of a right one, as a slip in the code would.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.core.metadata import alter_partition
from penstock.core.metadata.partition_change import PartitionChange
from penstock.core.metadata.security import REPLAY as SECURITY_REPLAY
from penstock.core.metadata.security import SecurityState
from penstock.core.raft.messages import NO_NODE
from penstock.core.raft.quorum import Quorum
from penstock.core.replica.postponed import PostponedBatches
from penstock.core.replica.producer_state import ProducerState
from penstock.core.transaction import decisions
from penstock.core.transaction.shard import TransactionShard
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.coordinator.transactions import Transactions
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.replication import follower_fetch
from penstock.runtime.replication.partition import Partition
from penstock.storage import recovery
from penstock.storage.files import OsFilesystem
from penstock.storage.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EndOffset
from penstock.storage.log import Log
from penstock.storage.producers.recall import RecalledBatches
from penstock.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from sim.disk import SimFile, SimFilesystem


@contextmanager
def ack_before_in_sync() -> Iterator[None]:
    """Acknowledge acks=all when the leader has the records."""

    def committed(partition: Partition, next_offset: int, *, sync: bool = True) -> asyncio.Future[None]:  # noqa: ARG001
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    with patch.object(Partition, "committed", committed):
        yield


@contextmanager
def elect_outside_in_sync() -> Iterator[None]:
    """Let the first replica lead that is there, whatever it has."""

    def elect(change: Any) -> tuple[int, bool]:
        for replica in change.replicas:
            if change._can_lead(change._state, replica):
                return replica, replica not in change.in_sync_replicas
        return NO_LEADER, False

    with patch.object(PartitionChange, "_elect", elect):
        yield


@contextmanager
def skip_truncation() -> Iterator[None]:
    """Never tell a follower that its log parted from the leader's."""

    def divergence(partition: Partition, offset: int, last_epoch: int) -> None:  # noqa: ARG001
        return None

    with patch.object(follower_fetch, "divergence", divergence):
        yield


@contextmanager
def forget_a_vote() -> Iterator[None]:
    """Vote for every candidate that asks; only those who stand themselves remember whom they want."""
    right = Quorum._vote

    def vote(quorum: Any, request: Any, effects: Any, now_ms: int) -> None:
        voted = quorum.election
        forgotten = voted if voted.voted_id == quorum.node_id else replace(voted, voted_id=NO_NODE)
        quorum.election = forgotten
        right(quorum, request, effects, now_ms)
        if quorum.election is forgotten:
            quorum.election = voted

    with patch.object(Quorum, "_vote", vote):
        yield


@contextmanager
def trust_a_stale_epoch() -> Iterator[None]:
    """Let a leader of an earlier epoch change who is in sync."""
    right: Callable[..., ErrorCode] = alter_partition._problem

    def problem(image: Any, broker_id: int, state: Any, wanted: Any, new_isr: Any) -> ErrorCode:
        error = right(image, broker_id, state, wanted, new_isr)
        return ErrorCode.NONE if error is ErrorCode.FENCED_LEADER_EPOCH else error

    with patch.object(alter_partition, "_problem", problem):
        yield


@contextmanager
def never_sync() -> Iterator[None]:
    """Leave everything to the page cache."""
    with patch.object(SimFile, "sync", lambda _: None):
        yield


@contextmanager
def never_sync_directories() -> Iterator[None]:
    """Leave new names, renames and removals to the file system."""
    with (
        patch.object(SimFilesystem, "sync_directory", lambda *_: None),
        patch.object(OsFilesystem, "sync_directory", lambda *_: None),
    ):
        yield


@contextmanager
def accept_a_hole() -> Iterator[None]:
    """Let recovery put up with a gap between segments, and sync finished ones only on request."""
    right = LogSync.request

    def request(sync: LogSync) -> None:
        if not sync._log.has_unsynced_segment or sys._getframe(1).f_code.co_name in ("flush", "durable", "settle"):
            right(sync)

    with (
        patch.object(recovery._Loader, "_gap_after", lambda *_: False),
        patch.object(LogSync, "request", request),
    ):
        yield


@contextmanager
def trust_an_unheard_leader() -> Iterator[None]:
    """With a minimum of one forget who else has everything before the new leader has said that it knows it is alone.

    When that one comes back without its log, it leads all the same: it led last.
    """
    right = PartitionChange._remember_eligible

    def remember_eligible(change: Any) -> None:
        change.by_leader = True
        right(change)

    with patch.object(PartitionChange, "_remember_eligible", remember_eligible):
        yield


@contextmanager
def forget_a_sync() -> Iterator[None]:
    """Do nothing where a sync is asked for while another one is under way."""

    def request(sync: LogSync) -> None:
        if sync._work is None and not sync._scheduled:
            sync._scheduled = True
            asyncio.get_running_loop().call_soon(sync._start)

    with patch.object(LogSync, "request", request):
        yield


def _durable_at_once(is_metadata: bool) -> AbstractContextManager[object]:
    right = LogSync.durable

    def durable(sync: LogSync, offset: int) -> asyncio.Future[None]:
        if sync._log.directory.name.startswith("__cluster_metadata") is not is_metadata:
            return right(sync, offset)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    return patch.object(LogSync, "durable", durable)


@contextmanager
def acknowledge_before_sync() -> Iterator[None]:
    """Acknowledge records that a sync is owed to at once, and leave the sync to the background."""
    with _durable_at_once(is_metadata=False):
        yield


@contextmanager
def vote_before_sync() -> Iterator[None]:
    """Count metadata as written when it is in the page cache."""
    with _durable_at_once(is_metadata=True):
        yield


@contextmanager
def lead_without_an_epoch() -> Iterator[None]:
    """Note a leader's epoch with its first batch, so that a leader of an empty log knows of none."""

    def end_of_epoch(partition: Partition, epoch: int) -> EndOffset:
        log = partition.log
        if epoch == partition.state.leader_epoch:
            return EndOffset(epoch, log.end_offset)
        latest = log.epochs.latest
        if epoch > partition.state.leader_epoch or epoch < 0 or (epoch > latest and latest < 0):
            return EndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        return EndOffset(latest, log.end_offset) if epoch > latest else log.epochs.end_offset_for(epoch, log.end_offset)

    with (
        patch.object(Log, "assign_epoch", lambda *_: None),
        patch.object(Partition, "end_of_epoch", end_of_epoch),
    ):
        yield


@contextmanager
def know_the_last_batches_only() -> Iterator[None]:
    """Refuse a repeated batch that is not among those in memory, although it is in the log."""
    with patch.object(RecalledBatches, "lookup", lambda *_: None):
        yield


# Of security.


@contextmanager
def let_batches_overtake() -> Iterator[None]:
    """Append what was sent behind a batch that was refused for now."""
    with patch.object(PostponedBatches, "refusal", lambda *_: None):
        yield


@contextmanager
def leave_lists_out_of_snapshots() -> Iterator[None]:
    """Write snapshots without access lists."""
    right = SecurityState.snapshot

    def snapshot(state: SecurityState) -> Iterator[Any]:
        return (record for record in right(state) if not isinstance(record, AccessControlEntryRecord))

    with patch.object(SecurityState, "snapshot", snapshot):
        yield


@contextmanager
def keep_what_is_revoked() -> Iterator[None]:
    """Skip the removal of an entry when the log is replayed."""
    with patch.dict(SECURITY_REPLAY, {RemoveAccessControlEntryRecord: lambda *_: None}):
        yield


@contextmanager
def grant_what_a_snapshot_revoked() -> Iterator[None]:
    """Do not tell the authorizer what is missing in the snapshot with which a node starts again."""
    with patch.object(SecurityState, "differences", lambda *_: ()):
        yield


# Of transactions.


@contextmanager
def take_late_markers() -> Iterator[None]:
    """Let a marker that comes late or again end whatever transaction its producer has open."""
    right = ProducerState.check_marker

    def check_marker(state: ProducerState, header: Any, marker: Any) -> Any:
        return right(state, header, marker._replace(transaction_version=1, first_offset=None))

    with patch.object(ProducerState, "check_marker", check_marker):
        yield


@contextmanager
def mark_before_decision() -> Iterator[None]:
    """Tell partitions how a transaction ends before it is certain that the decision is kept."""
    right = TransactionShard._carry_out

    def carry_out(shard: TransactionShard, decided: Any, effects: Any, now_ms: int) -> None:
        replies = len(effects.replies)
        right(shard, decided, effects, now_ms)
        for token, markers in effects.replies[replies:]:
            token.set_result(markers)
        del effects.replies[replies:]

    def send_when_settled(transactions: Transactions, shard: TransactionShard, markers: Any) -> None:
        transactions._send(shard, markers)

    with (
        patch.object(TransactionShard, "_carry_out", carry_out),
        patch.object(Transactions, "_send_when_settled", send_when_settled),
    ):
        yield


@contextmanager
def ignore_last_stable_offset() -> Iterator[None]:
    """Let readers of committed records have everything that is replicated."""
    with patch.object(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark)):
        yield


@contextmanager
def fence_nobody() -> Iterator[None]:
    """Let the coordinator listen to producers of any epoch."""

    def check_producer(transaction: Any, producer: Any) -> ErrorCode:
        known = transaction.producer_id == producer.producer_id
        return ErrorCode.NONE if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    with patch.object(decisions, "_check_producer", check_producer):
        yield


@contextmanager
def verify_nothing() -> Iterator[None]:
    """Let a batch of version 1 that was on its way for long begin or join whatever transaction there is."""
    right = TransactionGuard.__init__

    def init(guard: Any, env: Any, verify: Any, is_required: Any) -> None:  # noqa: ARG001
        right(guard, env, verify, lambda: False)

    with patch.object(TransactionGuard, "__init__", init):
        yield


VARIANTS = (
    ack_before_in_sync,
    elect_outside_in_sync,
    skip_truncation,
    forget_a_vote,
    trust_a_stale_epoch,
    never_sync,
    never_sync_directories,
    accept_a_hole,
    trust_an_unheard_leader,
    acknowledge_before_sync,
    vote_before_sync,
    lead_without_an_epoch,
    know_the_last_batches_only,
    let_batches_overtake,
)
SECURITY_VARIANTS = (
    leave_lists_out_of_snapshots,
    keep_what_is_revoked,
    grant_what_a_snapshot_revoked,
)
# Not found, or too rarely: the first takes a power cut in the moment between losing the last follower and the next
# acknowledgement, the second a marker that arrives after its producer's next transaction has begun.
UNSEEN = (forget_a_sync, take_late_markers)
TRANSACTIONAL_VARIANTS = (
    mark_before_decision,
    ignore_last_stable_offset,
    fence_nobody,
    verify_nothing,
)
