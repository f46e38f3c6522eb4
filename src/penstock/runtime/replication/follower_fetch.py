"""Serves fetches of followers: their offsets show what they have, which is how the high watermark moves.

A follower reads to the log's end. Its fetch is answered at once when its log diverges from ours, or when the high
watermark or the log start offset has moved since its last response; otherwise it waits like a consumer's, for any
appended byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from penstock.core.metadata.image import LOST_DIRECTORY
from penstock.core.replica.fencing import check_leader_epoch
from penstock.core.replica.fetch_session import FetchContext, FetchSession, SessionCache, Wanted
from penstock.core.replica.leader import LeaderState
from penstock.core.replica.throttle import Throttle, is_throttled
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.fetch_rows import (
    TOPIC_IDS_SINCE,
    FetchedPartition,
    FetchKey,
    forgotten_in,
    respond,
    wanted_in,
)
from penstock.runtime.replication.follower_view import FollowerView, Watch
from penstock.runtime.replication.leading import divergence, note_fetch
from penstock.runtime.replication.long_poll import LongPoll
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData

REPLICA_STATE_SINCE = 15
SESSION = "fetch session"


class FollowerConnection(Protocol):
    """The connection that a follower fetches over."""

    @property
    def listener_name(self) -> str:
        """The listener that it came to."""

    def when_closed(self, purpose: str, listener: Callable[[], None]) -> None:
        """Have `listener` called when it closes; one per purpose, the last one counts."""


class FollowerFetch:
    """Serves this broker's followers, and keeps track of what their fetch sessions must look at.

    The owner must call `end_session` for every session that ends, and `invite` for every partition that this broker
    starts to lead. Sessions end with their connections, and those of an incarnation when the next one comes.
    """

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        sessions: SessionCache,
        response_bytes_max: int,
        propose: Callable[[Partition], None],
        throttle: Throttle,
    ) -> None:
        """`propose` is called for followers that may be in sync; `throttle` holds back those that are not."""
        self._env = env
        self._partitions = partitions
        self._sessions = sessions
        self._reads = _FollowerReads(env, partitions, response_bytes_max, propose, throttle)
        # By session.
        self._views: dict[int, FollowerView] = {}
        # Parked fetches by follower.
        self._parked: dict[int, dict[LongPoll[FetchResponse], None]] = {}
        # Completes with the next fetch, if a caller waits for it.
        self._next_fetch: asyncio.Future[None] | None = None

    def fetch(
        self, request: FetchRequest, api_version: int, connection: FollowerConnection
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        """Answer a follower, at once or when there is something new for it."""
        session = self._sessions.open(
            request.session_id,
            request.session_epoch,
            wanted_in(request),
            forgotten_in(request),
            self._env.monotonic_ms(),
            is_privileged=True,
        )
        if session.error:
            return FetchResponse(error_code=session.error)
        view = self._views.get(session.session_id)
        if view is None:
            view = FollowerView(*_replica(request, api_version), self._env.monotonic_ms)
            if session.session_id:
                self._end_former(view)
                self._views[session.session_id] = view
                connection.when_closed(SESSION, partial(self._sessions.close, session.session_id))
        view.update(wanted_in(request), forgotten_in(request))
        if self._next_fetch is not None:
            self._next_fetch.set_result(None)
            self._next_fetch = None
        found = self._reads.collect(view, request, api_version, is_news=True)
        size = sum(row.size_bytes for row in found)
        if size >= request.min_bytes or request.max_wait_ms <= 0 or _is_urgent(session, found):
            return self._answer(view, session, found, api_version, connection)

        def answer_late() -> FetchResponse:
            late = self._reads.collect(view, request, api_version, is_news=False)
            return respond(session, late, self._partitions, api_version, connection.listener_name)

        return self._park(view, session, LongPoll((), request.min_bytes - size, request.max_wait_ms, answer_late))

    def invite(self, partition: Partition) -> None:
        """Answer the parked fetches of a partition's followers, which know of its new leader, or will in a moment."""
        for replica in partition.replicas:
            for poll in list(self._parked.get(replica, ())):
                poll.wake()

    def watches(self, partition: Partition) -> list[Watch]:
        """The sessions of followers that have this partition."""
        return [watcher for watcher in partition.watchers if isinstance(watcher, Watch)]

    async def next_fetch(self, timeout_ms: int) -> None:
        """Returns when a follower has fetched, or after that time."""
        if self._next_fetch is None:
            self._next_fetch = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._next_fetch,), timeout=timeout_ms / 1000)

    def _end_former(self, view: FollowerView) -> None:
        """End the sessions of earlier incarnations of a follower, whose connections may not have been seen to close."""
        for session_id, former in list(self._views.items()):
            if former.replica == view.replica and 0 <= former.broker_epoch < view.broker_epoch:
                self._sessions.close(session_id)

    def end_session(self, session: FetchSession) -> None:
        """A fetch session has ended."""
        view = self._views.pop(session.session_id, None)
        if view is not None:
            view.close()

    def _answer(
        self,
        view: FollowerView,
        session: FetchContext,
        found: Sequence[FetchedPartition],
        api_version: int,
        connection: FollowerConnection,
    ) -> FetchResponse:
        if not session.session_id:
            view.close()
        return respond(session, found, self._partitions, api_version, connection.listener_name)

    def _park(
        self, view: FollowerView, session: FetchContext, poll: LongPoll[FetchResponse]
    ) -> asyncio.Future[FetchResponse]:
        waiting = self._parked.setdefault(view.replica, {})

        def unpark(_: asyncio.Future[FetchResponse]) -> None:
            view.on_grown = None
            waiting.pop(poll, None)
            if not session.session_id:
                # Answered, or its connection has closed.
                view.close()

        waiting[poll] = None
        view.on_grown = poll.grown
        poll.reply.add_done_callback(unpark)
        return poll.reply


class _FollowerReads:
    """Reads for followers, and records their progress."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        response_bytes_max: int,
        propose: Callable[[Partition], None],
        throttle: Throttle,
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._response_bytes_max = response_bytes_max
        self._propose = propose
        self._throttle = throttle

    def collect(
        self, view: FollowerView, request: FetchRequest, api_version: int, *, is_news: bool
    ) -> list[FetchedPartition]:
        """What there is for a follower. `is_news` is set if its offsets have just arrived, and show progress."""
        now_ms = self._env.monotonic_ms()
        by_id = api_version >= TOPIC_IDS_SINCE
        replica, broker_epoch = _replica(request, api_version)
        eligible = self._check_broker(replica, broker_epoch)
        room = min(request.max_bytes, self._response_bytes_max)
        found = []
        first = True
        for key, wanted in view.asked():
            try:
                partition = self._partitions.lookup(*key, by_id=by_id)
                view.watch(key, partition)
                leading = partition.leading
                if eligible is None or leading is None:
                    raise _registered_again(replica)
                follower = leading.follower(replica)
                if follower is None:
                    # The metadata that assigns it a replica has not arrived here yet.
                    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{partition.name} has no replica on {replica}")
                if 0 <= broker_epoch < follower.broker_epoch:
                    raise _registered_again(replica)
                check_leader_epoch(wanted.leader_epoch, partition.state.leader_epoch)
                row = self._divergence(partition, key, wanted)
                if row is None:
                    if is_news and self._note(partition, wanted, replica, broker_epoch, eligible, now_ms):
                        self._propose(partition)
                    row = self._read(partition, leading, key, wanted, replica, room, first, now_ms)
            except ApiError as error:
                found.append(_refused(key, error.code))
                continue
            if row.size_bytes:
                room -= row.size_bytes
                first = False
            elif (
                row.data.diverging_epoch.epoch < 0
                and wanted.offset == partition.log.end_offset
                and replica in leading.in_sync_replicas
            ):
                # A follower that is not in sync could be proposed with every fetch.
                view.mark_clean(key)
            found.append(row)
        return found

    def _check_broker(self, replica: int, broker_epoch: int) -> bool | None:
        """Whether the controller would accept this incarnation of a broker as in sync; None for an earlier one."""
        broker = self._partitions.image.brokers.get(replica)
        if broker is None:
            return False
        registered = broker.registration.broker_epoch
        if 0 <= broker_epoch < registered:
            return None
        return broker_epoch in (-1, registered) and not broker.fenced and not broker.in_controlled_shutdown

    def _divergence(self, partition: Partition, key: FetchKey, wanted: Wanted) -> FetchedPartition | None:
        try:
            end = divergence(partition, wanted.offset, wanted.last_fetched_epoch)
        except ApiError as error:
            return _row(partition, key, b"", error.code)
        if end is None:
            return None
        row = _row(partition, key, b"", 0)
        return row._replace(data=row.data._replace(diverging_epoch=EpochEndOffset(*end)))

    def _note(
        self, partition: Partition, wanted: Wanted, replica: int, broker_epoch: int, eligible: bool, now_ms: int
    ) -> bool:
        if not partition.log.start_offset <= wanted.offset <= partition.log.end_offset:
            return False
        if eligible and partition.leading is not None and replica not in partition.leading.in_sync_replicas:
            known = self._partitions.state_of("", partition.topic_id, partition.name.partition, by_id=True)
            # The controller accepts no replica that was found damaged, until it has begun anew.
            eligible = known is None or known.directory(replica) != LOST_DIRECTORY
        return note_fetch(
            partition,
            replica,
            wanted.offset,
            wanted.log_start_offset,
            broker_epoch,
            is_eligible=eligible,
            now_ms=now_ms,
        )

    def _read(
        self,
        partition: Partition,
        leading: LeaderState,
        key: FetchKey,
        wanted: Wanted,
        replica: int,
        room: int,
        first: bool,
        now_ms: int,
    ) -> FetchedPartition:
        directory = self._partitions.home(partition)
        if directory.failure is not None:
            directory.check_writable()
        throttle = self._throttle_of(partition, leading, replica)
        size_max = min(wanted.bytes_max, room)
        try:
            if throttle is not None and throttle.is_exceeded(now_ms):
                data = b""
            elif size_max > 0 or first:
                data = partition.log.read(wanted.offset, max(0, size_max), minimum_one_batch=first).read()
            else:
                data = b""
        except ApiError as problem:
            # The follower needs the log's bounds to find out where to continue.
            return _row(partition, key, b"", note_read_failure(partition, problem))
        if throttle is not None:
            throttle.spent(len(data))
        partition.counters.sent(len(data))
        return _row(partition, key, data, 0)

    def _throttle_of(self, partition: Partition, leading: LeaderState, replica: int) -> Throttle | None:
        listed = partition.settings.leader_replication_throttled_replicas
        if not listed or replica in leading.in_sync_replicas:
            return None
        throttled = is_throttled(listed, partition.name.partition, self._partitions.node_id)
        return self._throttle if throttled else None


def _registered_again(replica: int) -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} has registered again since")


def _replica(request: FetchRequest, api_version: int) -> tuple[int, int]:
    """The follower's broker id and epoch; -1 for the epoch in versions without it."""
    if api_version >= REPLICA_STATE_SINCE:
        return request.replica_state
    return request.replica_id, -1


def _is_urgent(fetch: FetchContext, found: Iterable[FetchedPartition]) -> bool:
    cached = fetch.session.partitions if fetch.session is not None else {}
    for key, data, *_ in found:
        if data.error_code or data.diverging_epoch.epoch >= 0:
            return True
        known = cached.get(key)
        if known is None:
            continue
        if known.high_watermark != data.high_watermark or known.log_start_offset != data.log_start_offset:
            return True
    return False


def _row(partition: Partition, key: FetchKey, data: bytes, error: int) -> FetchedPartition:
    answer = PartitionData(
        key.partition,
        error,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.start_offset,
        aborted_transactions=None,
        records=data,
    )
    return FetchedPartition(key, answer, len(data))


def _refused(key: FetchKey, code: int) -> FetchedPartition:
    return FetchedPartition(key, PartitionData(key.partition, code, -1, records=b""), 0)
