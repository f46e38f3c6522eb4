"""Replicates from one leader over one connection: fetches, appends, and truncates where the leader's log diverges.

One request is in flight at a time. In a fetch session (KIP-227) it names only partitions whose offset changed since
the last one. Every request carries the epoch of the follower's last batch; if the leader's log diverges, the response
contains where to truncate (KIP-595), and the next request continues from there. A partition with an error is left out
of the session for a backoff that doubles with every failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from penstock.core.backoff import pause_after
from penstock.core.replica.throttle import Throttle, is_throttled
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.peer import Peer, PeerLost
from penstock.runtime.replication.following import (
    batch_before_start,
    divergence,
    replicate,
    starting_again,
    starting_from_tier,
    take_watermarks,
    truncation,
)
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.tier_start import HistoryOf, find_tier_start
from penstock.storage.leader_epochs import EndOffset
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

BACKOFF_FIRST_MS = 50
THROTTLED_MS = 100
TRUNCATING_MS = 25
# After a response that came early and empty: the leader has news that has not reached us yet.
EXPECTANT_WAIT_MS = 25
SESSION_EPOCH_MAX = 2**31 - 1
LATEST, EARLIEST = -1, -2

logger = logging.getLogger("penstock.replication")

Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """How a follower fetches; the names are those of the `replica.fetch.*` properties."""

    fetchers: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    min_bytes: int = 1
    wait_max_ms: int = 500
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000


class Followed:
    """One partition in one leader epoch."""

    __slots__ = ("asked_offset", "failures", "is_moved", "lag", "partition", "resume_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        # The offset in the current request; -1 when it does not name the partition.
        self.asked_offset = -1
        self.failures = 0
        # Whether what comes next is only in object storage.
        self.is_moved = False
        # Committed records that were missing here at the leader's last response.
        self.lag = 0
        # Left out until then; 0 while it is included.
        self.resume_ms = 0

    @property
    def key(self) -> Key:
        """The partition's topic id and number."""
        return self.partition.topic_id, self.partition.name.partition


class ReplicaFetcher:
    """Follows `leader_id` for the partitions that were added."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        leader_id: int,
        peer: Peer,
        settings: FetcherSettings,
        broker_epoch: Callable[[], int],
        throttle: Throttle | None = None,
        history_of: HistoryOf | None = None,
    ) -> None:
        """`history_of` finds what a log begins with that starts in object storage."""
        self._env = env
        self._partitions = partitions
        self._leader_id = leader_id
        self._peer = peer
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._history_of = history_of
        self._following: dict[Key, Followed] = {}
        # Changes of the session's partitions for the next request.
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._resting: dict[Key, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._failures = 0
        # When the leader last responded, on the monotonic clock.
        self.answered_ms = env.monotonic_ms()
        self._wait_ms = settings.wait_max_ms
        self._wake = asyncio.Event()
        self._task = keep_running(env, self._run, f"follow broker {leader_id}")

    def add(self, partition: Partition) -> None:
        """Follow a partition from now on, from its log end offset."""
        followed = Followed(partition)
        self._following[followed.key] = followed
        self._changed[followed.key] = None
        self._forgotten.pop(followed.key, None)
        self._resting.pop(followed.key, None)
        self._wake.set()

    def remove(self, key: Key) -> None:
        """Stop following a partition; a response in flight is not appended."""
        if self._following.pop(key, None) is not None:
            self._leave_out(key)
            self._resting.pop(key, None)

    @property
    def keys(self) -> list[Key]:
        """The partitions followed."""
        return list(self._following)

    @property
    def lag_max(self) -> int:
        """The largest number of committed records that a partition lacks, as far as the leader reported."""
        return max((followed.lag for followed in self._following.values()), default=0)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to follow."""
        return not self._following

    def close(self) -> None:
        """Stop, and close the connection."""
        self._task.cancel()
        self._peer.close()

    async def _run(self) -> None:
        self._begin_session()
        while True:
            self._resume()
            if len(self._following) == len(self._resting):
                await self._rest()
                continue
            request = self._request()
            started_ms = self._env.monotonic_ms()
            try:
                response: FetchResponse = await self._peer.send(request, timeout_ms=self._settings.timeout_ms)
            except PeerLost as error:
                await self._lost(error)
                continue
            self._failures = 0
            if not self._continue_session(response):
                continue
            self.answered_ms = self._env.monotonic_ms()
            elapsed_ms = self.answered_ms - started_ms
            expectant = not response.responses and elapsed_ms < request.max_wait_ms * 3 // 4
            self._wait_ms = EXPECTANT_WAIT_MS if expectant else self._settings.wait_max_ms
            try:
                for followed in self._take_all(response):
                    await self._reset(followed)
            except PeerLost as error:
                await self._lost(error)

    async def _rest(self) -> None:
        """Nothing can be fetched now: wait for a partition to be added, or for a backoff to end."""
        self._wake.clear()
        times = [self._following[key].resume_ms for key in self._resting if key in self._following]
        timeout_s = max(1, min(times) - self._env.monotonic_ms()) / 1000 if times else None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout_s)

    async def _lost(self, error: PeerLost) -> None:
        self._begin_session()
        self._failures += 1
        if self._failures == 1:
            logger.info("cannot follow broker %d for now: %s", self._leader_id, error)
        await asyncio.sleep(self._backoff_ms(self._failures) / 1000)

    def _backoff_ms(self, failures: int) -> int:
        return pause_after(failures, BACKOFF_FIRST_MS, self._settings.backoff_ms)

    def _begin_session(self) -> None:
        # The former session is still named, which ends it: a leader may not have seen its connection close.
        self._session_epoch = 0
        self._changed = {key: None for key in self._following if key not in self._resting}
        self._forgotten.clear()

    def _continue_session(self, response: FetchResponse) -> bool:
        if response.error_code:
            logger.debug("broker %d requires a new fetch session: error %d", self._leader_id, response.error_code)
            self._begin_session()
            return False
        if response.session_id:
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_epoch == SESSION_EPOCH_MAX else self._session_epoch + 1
        else:
            self._begin_session()
        return True

    def _resume(self) -> None:
        """Include partitions whose backoff has ended, and leave out those that are throttled."""
        now_ms = self._env.monotonic_ms()
        for key in [key for key in self._resting if self._following[key].resume_ms <= now_ms]:
            if self._following[key].partition.is_truncating:
                self._following[key].resume_ms = now_ms + TRUNCATING_MS
                continue
            del self._resting[key]
            self._following[key].resume_ms = 0
            self._changed[key] = None
            self._forgotten.pop(key, None)
        if self._throttle is not None and self._throttle.is_exceeded(now_ms):
            for followed in self._following.values():
                if followed.key not in self._resting and self._is_throttled(followed.partition):
                    self._let_rest(followed, THROTTLED_MS)

    def _is_throttled(self, partition: Partition) -> bool:
        listed = partition.settings.follower_replication_throttled_replicas
        if not is_throttled(listed, partition.name.partition, self._partitions.node_id):
            return False
        known = self._partitions.state_of("", partition.topic_id, partition.name.partition, by_id=True)
        return known is not None and self._partitions.node_id not in known.in_sync_replicas

    def _is_followed(self, followed: Followed) -> bool:
        """Whether it was not removed. Any use of its log may do that, by finding that the disk failed."""
        return self._following.get(followed.key) is followed

    def _include(self, followed: Followed) -> None:
        if self._is_followed(followed):
            self._changed[followed.key] = None

    def _let_rest(self, followed: Followed, rest_ms: int) -> None:
        if not self._is_followed(followed):
            return
        followed.resume_ms = self._env.monotonic_ms() + rest_ms
        self._resting[followed.key] = None
        self._leave_out(followed.key)

    def _leave_out(self, key: Key) -> None:
        self._changed.pop(key, None)
        if self._session_id:
            self._forgotten[key] = None

    def _request(self) -> FetchRequest:
        settings = self._settings
        wanted: dict[tuple[str, Uuid], list[FetchPartition]] = {}
        for key in self._changed:
            followed = self._following[key]
            partition = followed.partition
            followed.asked_offset = partition.log.end_offset
            row = FetchPartition(
                partition.name.partition,
                partition.leader_epoch,
                partition.log.end_offset,
                partition.log.epochs.latest,
                partition.log.start_offset,
                settings.max_bytes,
                self._partitions.home(partition).directory_id,
            )
            wanted.setdefault((partition.name.topic, partition.topic_id), []).append(row)
        forgotten: dict[Uuid, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._changed = {}
        self._forgotten = {}
        return FetchRequest(
            replica_state=ReplicaState(self._partitions.node_id, self._broker_epoch()),
            max_wait_ms=self._patience_ms(),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic, topic_id, rows) for (topic, topic_id), rows in wanted.items()],
            forgotten_topics_data=[ForgottenTopic("", topic_id, rows) for topic_id, rows in forgotten.items()],
        )

    def _patience_ms(self) -> int:
        """How long the leader may wait: not past the end of a partition's backoff."""
        now_ms = self._env.monotonic_ms()
        return min([self._wait_ms, *(max(1, self._following[key].resume_ms - now_ms) for key in self._resting)])

    def _take_all(self, response: FetchResponse) -> list[Followed]:
        """Act on every partition of a response; returns those whose offset the leader does not have on disk."""
        now_ms = self._env.now_ms()
        astray = []
        for topic in response.responses:
            for row in topic.partitions:
                followed = self._following.get((topic.topic_id, row.partition_index))
                if followed is None or followed.key in self._resting:
                    continue
                if followed.partition.is_truncating:
                    self._let_rest(followed, TRUNCATING_MS)
                    continue
                if not self._is_current(followed):
                    # What was requested may have been removed since: request what comes next now.
                    self._include(followed)
                    continue
                if row.error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
                    followed.is_moved = row.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
                    astray.append(followed)
                elif row.error_code:
                    self._fail(followed, f"error {_name(row.error_code)}")
                else:
                    self._take_or_fail(followed, row, now_ms)
        return astray

    def _take_or_fail(self, followed: Followed, row: PartitionData, now_ms: int) -> None:
        """Act on one partition of a response; an unexpected error holds up no others."""
        try:
            self._take(followed, row, now_ms)
        except Exception as error:  # noqa: BLE001 - it is the matter of this partition alone
            text = f"what broker {self._leader_id} has of {followed.partition.name} could not be replicated"
            asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})
            self._fail(followed, repr(error))

    def _is_current(self, followed: Followed) -> bool:
        """Whether a response still applies: the log and the leader have not changed since the request."""
        partition = followed.partition
        return (
            followed.key not in self._resting
            and not partition.is_truncating
            and not partition.is_leader
            and partition.leader_id == self._leader_id
            and followed.asked_offset == partition.log.end_offset
        )

    def _take(self, followed: Followed, row: PartitionData, now_ms: int) -> None:
        partition = followed.partition
        try:
            if row.diverging_epoch.epoch >= 0 or row.diverging_epoch.end_offset >= 0:
                offset = divergence(partition, EndOffset(*row.diverging_epoch))
                # Even if no record is truncated, the last epoch is another one, and the leader must learn it.
                self._truncate(followed, truncation(partition, offset, now_ms))
                return
            if row.records:
                assert isinstance(row.records, bytes | bytearray | memoryview)
                data = memoryview(row.records)
                restart_at = batch_before_start(partition, data)
                if restart_at is not None:
                    start_offset = partition.log.start_offset
                    steps = starting_again(partition, restart_at, now_ms)
                    append = partial(replicate, partition, data, now_ms, start_offset)
                    self._truncate(followed, steps, append, start_offset)
                    return
                replicate(partition, data, now_ms)
                if self._throttle is not None and self._is_throttled(partition):
                    self._throttle.spent(len(row.records))
            start_offset = partition.log.start_offset
            take_watermarks(partition, row.high_watermark, row.log_start_offset)
            followed.lag = max(0, row.high_watermark - partition.log.end_offset)
        except ApiError as error:
            self._fail(followed, error.message)
            return
        followed.failures = 0
        if partition.log.end_offset != followed.asked_offset or partition.log.start_offset != start_offset:
            self._include(followed)

    def _truncate(
        self,
        followed: Followed,
        steps: Iterator[int],
        completion: Callable[[], None] | None = None,
        start_offset: int = 0,
    ) -> None:
        """Have a log truncated, while the others are followed; nothing of it is requested meanwhile."""
        self._let_rest(followed, TRUNCATING_MS)
        if followed.partition.is_truncating:
            return
        work = self._carry_out(
            followed, self._partitions.carry_out(followed.partition, steps, completion, start_offset)
        )
        self._env.spawn(work, f"truncate {followed.partition.name}")

    async def _carry_out(self, followed: Followed, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except ApiError as error:
            self._fail(followed, error.message)
            return
        followed.failures = 0
        followed.resume_ms = self._env.monotonic_ms()
        self._wake.set()

    def _fail(self, followed: Followed, reason: str) -> None:
        followed.failures += 1
        name = followed.partition.name
        level = logging.INFO if followed.failures < 5 else logging.WARNING
        logger.log(level, "%s: cannot follow broker %d for now: %s", name, self._leader_id, reason)
        self._let_rest(followed, self._backoff_ms(followed.failures))

    async def _reset(self, followed: Followed) -> None:
        """Find out what the leader has, and continue where that is possible."""
        if followed.is_moved:
            await self._start_from_tier(followed)
            return
        partition = followed.partition
        now_ms = self._env.now_ms()
        latest = await self._list_offset(followed, LATEST)
        earliest = await self._list_offset(followed, EARLIEST)
        if not self._is_followed(followed) or not self._is_current(followed):
            return
        if latest is None or earliest is None:
            self._fail(followed, "the leader does not return its offsets")
            return
        end = partition.log.end_offset
        if latest < end:
            self._truncate(followed, truncation(partition, latest, now_ms))
        elif earliest > end:
            logger.warning("%s: starting again at %d, where the leader's log begins", partition.name, earliest)
            self._truncate(followed, starting_again(partition, earliest, now_ms))
        else:
            self._fail(followed, f"the leader has {earliest} to {latest}, and refused {end}")

    async def _start_from_tier(self, followed: Followed) -> None:
        """Begin after what the leader has only in object storage."""
        partition = followed.partition
        if self._history_of is None:
            self._fail(followed, "its records are in object storage, and this broker has no tiered storage")
            return
        try:
            start = await find_tier_start(
                self._peer, self._partitions.node_id, partition, self._history_of, self._settings.timeout_ms
            )
            if not self._is_followed(followed) or not self._is_current(followed):
                return
        except ApiError as error:
            self._fail(followed, error.message)
            return
        except TimeoutError:
            self._fail(followed, "object storage or its metadata takes too long")
            return
        self._truncate(followed, starting_from_tier(partition, start, self._env.now_ms()))

    async def _list_offset(self, followed: Followed, timestamp: int) -> int | None:
        name = followed.partition.name
        wanted = ListOffsetsPartition(name.partition, followed.partition.leader_epoch, timestamp)
        request = ListOffsetsRequest(self._partitions.node_id, topics=[ListOffsetsTopic(name.topic, [wanted])])
        response = await self._peer.send(request, timeout_ms=self._settings.timeout_ms)
        rows: Iterable[int] = (
            row.offset
            for topic in response.topics
            for row in topic.partitions
            if not row.error_code and row.offset >= 0
        )
        return next(iter(rows), None)


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
