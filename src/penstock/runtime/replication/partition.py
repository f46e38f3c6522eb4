"""One partition of which this broker holds a replica: it leads it, or follows its leader.

As leader it checks what producers send, appends it, and serves consumers and followers. `append` either appends the
whole batch or raises `ApiError` and changes nothing. All checks of a batch's content are made before an offset is
assigned. Consumers see what is below the high watermark, or below the last stable offset with read_committed; followers
see everything.

What it does for its followers is in `leading`, what it does as a follower in `following`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.config.topic import TopicSettings
from penstock.core.metadata.image import LOST_DIRECTORY, PartitionState
from penstock.core.metrics.counters import TopicCounters
from penstock.core.replica.follower import FollowerState
from penstock.core.replica.leader import LAG_MS_MAX, LeaderState
from penstock.core.replica.producer_state import (
    NOT_REQUIRED,
    AppendOrigin,
    Duplicate,
    EndMarker,
    RefusedBatch,
    Verification,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.replication.batch_preparation import (
    INLINE_BYTES_MAX,
    INLINE_COMPRESSED_BYTES_MAX,
    INLINE_RECORDS_MAX,
    Deferred,
    PreparedBatch,
    WorkBudget,
    prepare,
)
from penstock.runtime.replication.batch_validation import CODECS, check_records, check_times, compression_level
from penstock.runtime.replication.commit_waiters import CommitWaiters, follow
from penstock.runtime.replication.replica_store import log_settings
from penstock.runtime.replication.watcher import EVERYTHING, Watcher
from penstock.storage.files import CorruptLogError, StorageError
from penstock.storage.leader_epochs import EndOffset
from penstock.storage.log import Log, LogSlice
from penstock.storage.producers.recall import RecalledBatches, Unsearched
from penstock.storage.producers.replay import build_end_marker
from penstock.wire.record_types import BatchTooLarge, DecompressionTooLarge, InvalidRecords
from penstock.wire.records import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    check_crc,
    check_produced,
    patch,
    read_body,
    read_header,
    recompress,
)

NO_TIMESTAMP = -1
# Looking up a member of an enum takes longer than most checks of a batch.
CLIENT = AppendOrigin.CLIENT
CODEC_MASK = 0x07
# The default of penstock.partition.producer.ids.max.
PRODUCER_IDS_MAX = 1_000_000


class Appended(NamedTuple):
    """The offsets of a produced batch. `next_offset` must be durable or replicated before it is acknowledged."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int = NO_TIMESTAMP


class Partition:
    """One replica. `leading` is its state as leader, None while another broker leads; `state` is either role's."""

    __slots__ = (
        "_announced_bytes",
        "_append_listeners",
        "_codec",
        "_env",
        "_lag_ms_max",
        "_recalled",
        "_waiters",
        "appended_bytes",
        "counters",
        "decompressed_bytes_max",
        "is_truncating",
        "leading",
        "log",
        "name",
        "on_damage",
        "on_failure",
        "partition_epoch",
        "producer_ids_max",
        "replicas",
        "settings",
        "start_waiters",
        "state",
        "sync",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        env: Env,
        name: TopicPartition,
        topic_id: Uuid,
        log: Log,
        state: LeaderState | FollowerState,
        replication_factor: int,
        settings: TopicSettings,
        decompressed_bytes_max: int,
        on_failure: Callable[[StorageError], None],
        *,
        lag_ms_max: int = LAG_MS_MAX,
        counters: TopicCounters | None = None,
        producer_ids_max: int = PRODUCER_IDS_MAX,
    ) -> None:
        self._env = env
        self.name = name
        self.counters = counters or TopicCounters()
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.leading = state if isinstance(state, LeaderState) else None
        self.partition_epoch = -1
        # Whether a truncation is in progress: until it is durable nothing is appended, and the role stays.
        self.is_truncating = False
        self.replicas: tuple[int, ...] = tuple(range(replication_factor))
        self.decompressed_bytes_max = decompressed_bytes_max
        self.producer_ids_max = producer_ids_max
        self._lag_ms_max = lag_ms_max
        self.on_failure = on_failure
        # Called with damage that a read has met, and that was not served.
        self.on_damage: Callable[[CorruptLogError], None] = lambda _: None
        self.sync = LogSync(env, log, on_failure, self.counters.flushes)
        # All bytes appended since this broker opened the partition, and how many of them readers were notified of.
        self.appended_bytes = 0
        self._announced_bytes = 0
        self._recalled = RecalledBatches()
        self._waiters = CommitWaiters()
        # Futures that wait until deleted records are gone from every in-sync replica.
        self.start_waiters = CommitWaiters()
        # Parked fetches that wait for records; called with the number of bytes that became visible.
        self._append_listeners: dict[Callable[[int], None], None] = {}
        self.watchers: dict[Watcher, None] = {}
        self.configure(settings)

    def configure(self, settings: TopicSettings) -> None:
        """Apply new topic settings, from the next batch on."""
        self.settings = settings
        self._codec = CODECS.get(settings.compression_type)
        self.log.settings = log_settings(settings)
        if not settings.remote_storage_enable:
            # What was in object storage is no longer part of the log.
            self.log.advance_start_offset(self.log.local_start_offset)
        if self.leading is not None and self.leading.set_min_in_sync(settings.min_insync_replicas):
            self.committed_more()

    def replace_log(self, log: Log, owed: Callable[[], None]) -> None:
        """Continue with a log that has all of the present one; its first sync runs `owed` too."""
        assert log.end_offset == self.log.end_offset
        self.log = log
        former, self.sync = self.sync, LogSync(self._env, log, self.on_failure, self.counters.flushes)
        self.sync.owe(owed)
        self.sync.take_over(former)
        self._recalled.clear()

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leading is not None

    @property
    def must_confirm(self) -> bool:
        """Whether this broker leads, and must confirm to the controller that it does without others."""
        return self.leading is not None and self.leading.must_confirm

    @property
    def leader_id(self) -> int:
        """The broker that leads the partition, or -1."""
        return self.state.leader_id

    @property
    def leader_epoch(self) -> int:
        """The leader epoch."""
        return self.state.leader_epoch

    def make_leader(self, node_id: int, known: PartitionState, now_ms: int) -> bool:
        """Lead as the metadata requires; returns whether that started a leader epoch.

        Within an epoch only the replicas and the in-sync replicas change. Outdated states are ignored.
        """
        leading = self.leading
        if leading is not None and leading.leader_epoch >= known.leader_epoch:
            self.settle(known, now_ms)
            return False
        if leading is not None:
            self.counters.in_sync_changed(len(leading.in_sync_replicas), len(known.in_sync_replicas))
        self.replicas = known.replicas
        self.partition_epoch = known.partition_epoch
        log = self.log
        self.state = self.leading = LeaderState(
            node_id,
            known.leader_epoch,
            known.replicas,
            known.in_sync_replicas,
            log.end_offset,
            min(self.state.high_watermark, log.end_offset),
            now_ms,
            lag_ms_max=self._lag_ms_max,
            min_in_sync=self.settings.min_insync_replicas,
            eligible_replicas=known.eligible_leader_replicas,
            leaving_replicas=known.removing_replicas,
        )
        self.leading.damaged_replicas = _damaged_in(known)
        # Followers that request the end of an older epoch get this one's start, before it has a batch.
        log.assign_epoch(known.leader_epoch, log.end_offset)
        # Other batches may have been replicated since.
        self._recalled.clear()
        self.announce(EVERYTHING)
        if self.leading.is_sole_replica and self.leading.has_followers:
            self.sync.request()
        # It may have led before, and what waits since then may wait for replicas that are gone.
        self.committed_more()
        self.check_deleted()
        self._fail_if_too_few()
        return True

    def make_follower(self, known: PartitionState) -> bool:
        """Follow the leader in the metadata, or none for now; returns whether that started a leader epoch."""
        if known.leader_epoch < self.state.leader_epoch:
            return False
        self.replicas = known.replicas
        self.partition_epoch = known.partition_epoch
        if known.leader_epoch == self.state.leader_epoch:
            assert self.leading is None, "an epoch has one leader"
            return False
        high_watermark = min(self.state.high_watermark, self.log.end_offset)
        self.state = FollowerState(known.leader, known.leader_epoch, high_watermark)
        self.leading = None
        gone = self._not_leader()
        self._waiters.fail(gone)
        self.start_waiters.fail(gone)
        self.sync.refuse(gone)
        self.announce(EVERYTHING)
        return True

    def settle(self, known: PartitionState, now_ms: int) -> None:
        """Apply the controller's replicas and in-sync replicas of this leader epoch, unless they are outdated."""
        leading = self.leading
        if leading is None or known.leader_epoch != leading.leader_epoch:
            return
        if known.partition_epoch < self.partition_epoch:
            return
        self.replicas = known.replicas
        leading.damaged_replicas = _damaged_in(known)
        if known.partition_epoch == self.partition_epoch:
            # The response to a proposal contained this change, except for replicas; another may be in flight.
            leading.eligible_replicas = frozenset(known.eligible_leader_replicas)
            leading.leaving_replicas = frozenset(known.removing_replicas)
            if leading.assigned(known.replicas, now_ms):
                self.committed_more()
            return
        self.partition_epoch = known.partition_epoch
        was_sole = len(leading.in_sync_replicas) == 1
        self.counters.in_sync_changed(len(leading.in_sync_replicas), len(known.in_sync_replicas))
        eligible, leaving = known.eligible_leader_replicas, known.removing_replicas
        if leading.settled(known.in_sync_replicas, known.replicas, now_ms, eligible, leaving):
            self.committed_more()
        for watcher in self.watchers:
            watcher.moved()
        self.check_deleted()
        if leading.is_sole_replica and not was_sole:
            # No other replica has what is acknowledged from here on.
            self.sync.request()
        self._fail_if_too_few()

    def _fail_if_too_few(self) -> None:
        """Answer what waits to be committed if too few replicas are left for that."""
        leading = self.leading
        if self._waiters.waiting and leading is not None and not leading.has_enough_in_sync:
            self._waiters.fail(
                ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"{self.name}: the records are in the log, but only {len(leading.in_sync_replicas)} replicas are "
                    f"still in sync, and min.insync.replicas is {leading.min_in_sync}",
                )
            )

    def _not_leader(self) -> ApiError:
        leader = "no broker" if self.leader_id == NO_LEADER else f"broker {self.leader_id}"
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{leader} leads {self.name} in epoch {self.leader_epoch}")

    def fence(self) -> None:
        """Stop serving, and leading: waiting requests fail with an error that makes clients refresh their metadata."""
        self.leading = None
        self._waiters.fail(self._not_leader())
        self.start_waiters.fail(self._not_leader())
        self.announce(EVERYTHING)

    @property
    def high_watermark(self) -> int:
        """The offset before which every in-sync replica has everything."""
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction is decided and its marker committed."""
        high_watermark = self.state.high_watermark
        unstable = self.log.producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable > high_watermark:
            return high_watermark
        # Its first records may have been deleted.
        return max(unstable, self.log.start_offset)

    def check_enough_replicas(self) -> None:
        """Reject an acks=all produce with too few in-sync replicas."""
        leading = self.leading
        if leading is not None and not leading.has_enough_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leading.in_sync_replicas)} replicas are in sync, and min.insync.replicas requires "
                f"{leading.min_in_sync}",
            )

    def append(
        self,
        data: memoryview | bytearray,
        now_ms: int,
        origin: AppendOrigin = CLIENT,
        verification: Verification | None = NOT_REQUIRED,
        budget: WorkBudget | None = None,
        prepared: PreparedBatch | None = None,
    ) -> Appended:
        """Append the one batch in `data`. `data` is patched in place and not kept.

        A batch that starts a transaction here needs the token of `begin_verification`. Raises Unsearched for one that
        may be a repeated one: `recall` finds out. With a `budget`, one that takes too long raises Deferred; it is to be
        appended again with what was `prepared` for it.
        """
        header = read_header(data)
        self._check_size(header, len(data))
        if prepared is not None:
            body, facts = prepared.body, prepared.facts
        else:
            limit = self.decompressed_bytes_max
            if budget is not None:
                if (
                    budget.left <= 0
                    or self._codec is not None
                    or header.records_count > INLINE_RECORDS_MAX
                    or len(data) > INLINE_BYTES_MAX
                ):
                    self._check_budget(budget, header, data, now_ms)
                if limit > INLINE_BYTES_MAX:
                    limit = INLINE_BYTES_MAX
            check_crc(data, 0, header)
            if origin is CLIENT:
                check_produced(header)
            try:
                body = read_body(data, 0, header, limit)
            except DecompressionTooLarge:
                if limit == self.decompressed_bytes_max:
                    raise
                raise self._deferred(data, now_ms) from None
            if budget is not None:
                budget.left -= len(body)
            facts = check_records(self.settings, header, body, now_ms)
        if header.producer_id >= 0:
            verdict = self.log.producers.check(header, origin, verification)
            if isinstance(verdict, RefusedBatch):
                refused = ApiError(verdict.code, verdict.message)
                verdict = self._recalled.lookup(self.log, header, refused)
                if verdict is None:
                    raise refused
            if verdict is not None:
                return self._appended_before(verdict)
            if len(self.log.producers) >= self.producer_ids_max and origin is CLIENT:
                self._check_producer_known(header.producer_id)
        if prepared is not None and prepared.data is not data:
            data, header = prepared.data, prepared.header
            self._check_size(header, len(data))
        elif self._codec is not None and self._codec != header.compression:
            if budget is not None and len(body) > INLINE_COMPRESSED_BYTES_MAX:
                raise self._deferred(data, now_ms)
            level = compression_level(self.settings)
            data = bytearray(recompress(data, header, self._codec, level, self.decompressed_bytes_max))
            header = read_header(data)
            self._check_size(header, len(data))
        header = check_times(self.settings, data, header, body, facts, now_ms)
        append_time = now_ms if self.settings.log_append_time else NO_TIMESTAMP
        appended = self._write(data, header, append_time, now_ms)
        self.counters.appended(header.records_count, len(data))
        if header.attributes & CODEC_MASK:
            self.counters.saved_bytes_in += HEADER_SIZE + len(body) - len(data)
        return appended

    def _check_producer_known(self, producer_id: int) -> None:
        """Refuse another producer. Forgetting one instead would have its repeated batches stored twice."""
        if self.log.producers.get(producer_id) is None:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.name} has had {len(self.log.producers)} idempotent producers within producer.id.expiration.ms, "
                "as many as it may have (penstock.partition.producer.ids.max): use producers for longer",
            )

    def _check_budget(self, budget: WorkBudget, header: BatchHeader, data: memoryview | bytearray, now_ms: int) -> None:
        """Raises Deferred if it is known without looking into the batch that it takes too long."""
        is_compressed_again = self._codec is not None and self._codec != header.compression
        if (
            len(data) > INLINE_BYTES_MAX
            or header.records_count > INLINE_RECORDS_MAX
            or (is_compressed_again and len(data) > INLINE_COMPRESSED_BYTES_MAX)
        ):
            raise self._deferred(data, now_ms)
        if budget.left <= 0:
            raise Deferred(None)
        if is_compressed_again:
            budget.left -= INLINE_BYTES_MAX // 4

    def _deferred(self, data: memoryview | bytearray, now_ms: int) -> Deferred:
        return Deferred(partial(prepare, self.settings, data, self.decompressed_bytes_max, now_ms))

    def stored(self, data: memoryview | bytearray) -> Appended | None:
        """Where the one batch in `data` was stored before; None if it was not. Raises Unsearched."""
        header = read_header(data)
        if header.producer_id < 0:
            return None
        self._check_size(header, len(data))
        check_crc(data, 0, header)
        verdict = self.log.producers.check(header)
        if isinstance(verdict, RefusedBatch):
            verdict = self._recalled.lookup(self.log, header, ApiError(verdict.code, verdict.message))
        return self._appended_before(verdict) if isinstance(verdict, Duplicate) else None

    async def recall(self, unsearched: Unsearched) -> Appended:
        """Where a batch was stored before; raises the error with which it was refused if it was not.

        Only a leader knows: what it has may be truncated when another one leads.
        """
        epoch = self.leader_epoch
        known = await self._recalled.search(self.log, unsearched.header, unsearched.refused)
        if self.leading is None or self.leader_epoch != epoch:
            raise self._not_leader()
        if known is None:
            raise unsearched.refused
        return self._appended_before(known)

    def _appended_before(self, duplicate: Duplicate) -> Appended:
        append_time = duplicate.timestamp if self.settings.log_append_time else NO_TIMESTAMP
        return Appended(duplicate.base_offset, duplicate.last_offset + 1, append_time)

    def append_marker(self, producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int) -> Appended:
        """Append a producer's transaction marker. Raises MarkerRefused."""
        batch = bytearray(build_end_marker(producer_id, producer_epoch, marker, now_ms))
        header = read_header(batch)
        self.log.producers.check_marker(header, marker)
        self.check_enough_replicas()
        appended = self._write(batch, header, NO_TIMESTAMP, now_ms)
        self.log.producers.first_unstable_offset(self.state.high_watermark)
        return appended

    def begin_verification(self, header: BatchHeader, now_ms: int, *, bumps_epoch: bool) -> Verification | None:
        """The token to get before asking a transaction's coordinator; None when the transaction is open here."""
        return self.log.producers.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, now_ms, bumps_epoch=bumps_epoch
        )

    def _write(self, data: memoryview | bytearray, header: BatchHeader, append_time: int, now_ms: int) -> Appended:
        leading = self.leading
        if leading is None:
            raise self._not_leader()
        log = self.log
        base_offset = log.end_offset
        leader_epoch = leading.leader_epoch
        patch(data, 0, base_offset, leader_epoch)
        header = tuple.__new__(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:]))
        try:
            log.append((header,), data, now_ms)
        except StorageError as error:
            if not error.is_passing:
                self.on_failure(error)
            raise
        self.appended_bytes += len(data)
        if log.has_unsynced_segment:
            self.sync.request()
        next_offset = log.end_offset
        if leading.appended(next_offset) and (self._append_listeners or self._waiters.waiting):
            self.committed_more()
        if self.watchers:
            for watcher in self.watchers:
                watcher.grown(len(data))
        return tuple.__new__(Appended, (base_offset, next_offset, append_time))

    def _check_size(self, header: BatchHeader, size: int) -> None:
        batch_size = header.batch_length + LENGTH_OVERHEAD
        if batch_size > self.settings.max_message_bytes:
            raise BatchTooLarge(batch_size, self.settings.max_message_bytes)
        if batch_size < size:
            raise InvalidRecords("a produce request must hold exactly one batch for each partition")
        if header.base_offset:
            raise InvalidRecords(f"a produced batch's base offset must be 0, not {header.base_offset}")

    def committed(self, next_offset: int, *, sync: bool = True) -> asyncio.Future[None]:
        """Completes when every in-sync replica has everything before `next_offset`.

        If this broker is the only one of them, and with `sync`, it must be on disk as well. Fails when leadership or
        too many replicas are lost before that; the records may then be committed or not.
        """
        leading = self.leading
        if leading is not None and leading.high_watermark < next_offset:
            return self._waiters.wait(next_offset, sync)
        if leading is not None and sync and leading.is_sole_replica:
            return self.sync.durable(next_offset)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if leading is None:
            future.set_exception(self._not_leader())
            future.exception()
        else:
            future.set_result(None)
        return future

    def committed_more(self) -> None:
        """The high watermark moved: complete the futures that it passed, and notify readers."""
        state = self.state
        self.log.producers.first_unstable_offset(state.high_watermark)
        if self._waiters.waiting:
            for offset, sync, future in self._waiters.take(state.high_watermark):
                if sync and state.is_sole_replica:
                    follow(self.sync.durable(offset), future)
                elif not future.done():
                    future.set_result(None)
        if self._append_listeners:
            # Only at the log's end is it known how many bytes were committed.
            size = 1
            if state.high_watermark == self.log.end_offset:
                size = self.appended_bytes - self._announced_bytes
                self._announced_bytes = self.appended_bytes
            self.announce(size)
        for watcher in self.watchers:
            watcher.moved()

    def read(self, offset: int, size_max: int, *, committed_only: bool, minimum_one_batch: bool) -> LogSlice:
        """What a consumer may see from `offset` on; raises OFFSET_OUT_OF_RANGE outside of the log."""
        limit = self.last_stable_offset if committed_only else self.state.high_watermark
        if offset > limit:
            if offset > self.log.end_offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is past the end of the log, {self.log.end_offset}"
                )
            offset = min(offset, limit)
        return self.log.read(offset, size_max, offset_max=limit, minimum_one_batch=minimum_one_batch)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have `listener` called with the number of bytes whenever more can be read."""
        if not self._append_listeners:
            self._announced_bytes = self.appended_bytes
        self._append_listeners[listener] = None

    def unlisten(self, listener: Callable[[int], None]) -> None:
        """Stop calling `listener`."""
        self._append_listeners.pop(listener, None)

    def watch(self, watcher: Watcher) -> None:
        """Have `watcher` notified of every change."""
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Stop notifying `watcher`."""
        self.watchers.pop(watcher, None)

    def announce(self, size_bytes: int) -> None:
        """Tell parked fetches that more bytes can be read."""
        for listener in tuple(self._append_listeners):
            listener(size_bytes)
        if size_bytes == EVERYTHING:
            self.tell_watchers()

    def tell_watchers(self) -> None:
        """Make all watchers look again."""
        for watcher in self.watchers:
            watcher.changed()

    def check_deleted(self) -> None:
        """Complete the futures of deleted records, once every in-sync replica has deleted them."""
        leading = self.leading
        if self.start_waiters.waiting and leading is not None:
            lowest = leading.low_watermark
            for _, _, future in self.start_waiters.take(EVERYTHING if lowest is None else lowest):
                if not future.done():
                    future.set_result(None)

    def forget_recalled(self) -> None:
        """The log was truncated: what was found in it may no longer be there."""
        self._recalled.clear()

    def end_of_epoch(self, epoch: int) -> EndOffset:
        """Where a leader epoch ends in this log: the largest known one up to it, and its end. Both -1 if unknown."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)


def _damaged_in(known: PartitionState) -> frozenset[int]:
    """The replicas that were found damaged, by the directories of the metadata."""
    if LOST_DIRECTORY not in known.directories:
        return frozenset()
    return frozenset(replica for replica in known.replicas if known.directory(replica) == LOST_DIRECTORY)
