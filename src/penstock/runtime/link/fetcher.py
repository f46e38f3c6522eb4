"""Mirrors the partitions of one source broker over one connection: fetches, and appends what comes as it is.

One request is in flight at a time; it names every partition that may continue, those that had their turn last at the
end. Whatever a source returns, the fetcher continues: an error of one partition delays that partition alone, any other
one is followed by a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.client.failures import NoAnswer
from penstock.core.link.mirror import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, Action, MirrorPartition
from penstock.model.errors import ApiError, ErrorCode, error_name
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.link.source import EARLIEST, FETCH_LANE, LATEST, Source
from penstock.runtime.replication.mirroring import (
    NOTHING,
    Mirrored,
    append_mirrored,
    append_within,
    first_batch,
    follow_start,
    last_batch,
    restarted,
    restarting_at,
    restarting_before,
    start_within_batch,
)
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

WAIT_MS = 500
IDLE_S = 0.25
PARTITION_BYTES_MAX = 1024 * 1024
# After so many bytes other work of the broker gets its turn.
BYTES_PER_TURN = 1024 * 1024
READ_UNCOMMITTED = 0
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

logger = logging.getLogger("penstock.links")


@dataclass(slots=True, eq=False)
class Mirror:
    """One mirror partition that is led here, in one leader epoch."""

    partition: Partition
    source_topic_id: Uuid
    leader_epoch: int
    state: MirrorPartition = field(default_factory=MirrorPartition)
    asked_offset: int = -1

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads in the same epoch: only then does anything here count."""
        partition = self.partition
        return partition.leading is not None and partition.leader_epoch == self.leader_epoch


@dataclass(slots=True)
class LinkCounters:
    """What came over a link since the broker started."""

    records: int = 0
    bytes: int = 0
    highest_producer_id: int = -1


class SourceFetcher:
    """Fetches from one broker of the source for the mirrors that were added.

    `may_append` returns whether a topic is still to be mirrored: it is asked before every append.
    """

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        source: Source,
        broker_id: int,
        max_bytes: int,
        counters: LinkCounters,
        may_append: Callable[[Uuid], bool],
        on_moved: Callable[[], None],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._source = source
        self._broker_id = broker_id
        self._max_bytes = max_bytes
        self._counters = counters
        self._may_append = may_append
        self._on_moved = on_moved
        self._mirrors: dict[TopicPartition, Mirror] = {}
        self._failures = 0
        self._wake = asyncio.Event()
        self._task = env.spawn(self._run(), f"mirror from broker {broker_id} of a link's source")

    @property
    def mirrors(self) -> dict[TopicPartition, Mirror]:
        """The mirrors that are fetched here."""
        return self._mirrors

    def add(self, mirror: Mirror) -> None:
        """Mirror a partition from now on."""
        self._mirrors[mirror.partition.name] = mirror
        self._wake.set()

    def remove(self, name: TopicPartition) -> None:
        """Stop mirroring a partition; an answer that is under way is not appended."""
        self._mirrors.pop(name, None)

    def close(self) -> None:
        """Stop."""
        self._mirrors.clear()
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_once()
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - whatever a source sends, its mirrors go on
                self._failures += 1
                await self._rest_after(error)

    async def _rest_after(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        expected = isinstance(error, NoAnswer | ApiError)
        if self._failures == 1:
            logger.warning(
                "cannot mirror from broker %d of a source for now: %s",
                self._broker_id,
                reason,
                exc_info=None if expected else error,
            )
        now_ms = self._env.monotonic_ms()
        for mirror in self._mirrors.values():
            mirror.state.retry(reason, now_ms)
            # The pause of the connection is enough.
            mirror.state.retry_ms = 0
        self._on_moved()
        pause_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self._failures - 1, 10))
        await asyncio.sleep(pause_ms / 1000)

    async def _fetch_once(self) -> None:
        ready = self._ready()
        if not ready:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), IDLE_S)
            return
        address = self._source.brokers.get(self._broker_id)
        if address is None:
            raise NoAnswer(f"the source no longer lists broker {self._broker_id}")
        response: FetchResponse = await self._source.ask_at(
            address, self._request(ready), self._source.timeout_ms + WAIT_MS, lane=FETCH_LANE
        )
        if response.error_code:
            raise NoAnswer(f"broker {self._broker_id} refused a fetch: {error_name(response.error_code)}")
        names = {mirror.source_topic_id: mirror.partition.name.topic for mirror in ready}
        asked = set(ready)
        handled = 0
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                mirror = self._mirrors.get(TopicPartition(name, row.partition_index))
                if mirror is None or mirror not in asked or not mirror.is_led:
                    continue
                await self._take(mirror, row)
                handled += len(row.records or b"")
                if handled >= BYTES_PER_TURN:
                    handled = 0
                    await asyncio.sleep(0)
        if response.throttle_time_ms > 0:
            await asyncio.sleep(min(response.throttle_time_ms, BACKOFF_MAX_MS) / 1000)

    def _ready(self) -> list[Mirror]:
        now_ms = self._env.monotonic_ms()
        return [
            mirror
            for mirror in self._mirrors.values()
            if mirror.is_led
            and not mirror.state.failure
            and mirror.state.retry_ms <= now_ms
            and not mirror.partition.is_truncating
        ]

    def _request(self, ready: list[Mirror]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        rows: dict[str, list[FetchPartition]] = {}
        for mirror in ready:
            name, log, state = mirror.partition.name, mirror.partition.log, mirror.state
            if not state.is_verified and log.end_offset <= log.local_start_offset:
                state.is_verified = True
            offset = log.end_offset if state.is_verified else log.end_offset - 1
            mirror.asked_offset = log.end_offset
            leader = self._source.leader(name)
            row = FetchPartition(
                partition=name.partition,
                current_leader_epoch=-1 if leader is None else leader[1],
                fetch_offset=offset,
                last_fetched_epoch=state.last_epoch if state.is_verified else -1,
                log_start_offset=-1,
                partition_max_bytes=min(PARTITION_BYTES_MAX, self._max_bytes),
            )
            rows.setdefault(name.topic, []).append(row)
            topics[name.topic] = FetchTopic(name.topic, mirror.source_topic_id, rows[name.topic])
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=READ_UNCOMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[*topics.values()],
        )

    async def _take(self, mirror: Mirror, row: PartitionData) -> None:
        """Act on one partition of an answer."""
        partition, state = mirror.partition, mirror.state
        if mirror.asked_offset != partition.log.end_offset or not self._may_append(partition.topic_id):
            return
        now_ms = self._env.monotonic_ms()
        try:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._reset(mirror)
            elif row.error_code in (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR):
                state.retry(error_name(row.error_code), now_ms)
            elif row.error_code:
                state.retry(f"the source refuses {partition.name}: {error_name(row.error_code)}", now_ms)
                if row.error_code in _MOVED:
                    self._on_moved()
            elif row.diverging_epoch.epoch >= 0 or row.diverging_epoch.end_offset >= 0:
                state.diverged(row.diverging_epoch.end_offset)
            else:
                await self._append(mirror, row)
        except NoAnswer:
            raise
        except Exception as error:
            if not isinstance(error, ApiError):
                logger.exception("%s cannot be mirrored for now", partition.name)
            state.retry(str(error) or type(error).__name__, now_ms)
        if state.failure:
            logger.error("%s is no longer mirrored: %s", partition.name, state.failure)

    async def _append(self, mirror: Mirror, row: PartitionData) -> None:
        partition, state = mirror.partition, mirror.state
        data = memoryview(row.records) if row.records else memoryview(b"")  # type: ignore[arg-type]
        if not state.is_verified and not self._verify(mirror, row, data):
            return
        if len(data):
            self._partitions.home(partition).check_writable()
            mirrored = await self._append_batches(partition, data, row.high_watermark)
            if mirrored.size_bytes:
                # Also where compaction has left batches without records.
                state.last_epoch = mirrored.last_epoch
                # Last in the next request.
                self._mirrors[partition.name] = self._mirrors.pop(partition.name)
            self._counters.records += mirrored.records
            self._counters.bytes += mirrored.size_bytes
            self._counters.highest_producer_id = max(self._counters.highest_producer_id, mirrored.highest_producer_id)
        state.succeeded(row.log_start_offset, row.high_watermark)
        follow_start(partition, row.log_start_offset)

    async def _append_batches(self, partition: Partition, data: memoryview, source_end: int) -> Mirrored:
        now_ms = self._env.now_ms()
        begins_at = start_within_batch(partition, data, source_end)
        if begins_at is None:
            return append_mirrored(partition, data, source_end, now_ms)
        start_offset, mirrored = partition.log.start_offset, NOTHING

        def append() -> None:
            nonlocal mirrored
            mirrored = append_within(partition, data, source_end, now_ms, start_offset)

        steps = restarting_before(partition, begins_at, now_ms)
        await self._partitions.carry_out(partition, steps, append, start_offset)
        return mirrored

    def _verify(self, mirror: Mirror, row: PartitionData, data: memoryview) -> bool:
        """Compare the last batch; returns whether to go on with this answer."""
        partition, state = mirror.partition, mirror.state
        end = partition.log.end_offset
        if row.high_watermark < end:
            state.behind(row.log_start_offset, row.high_watermark, end, self._env.monotonic_ms())
            return False
        own = last_batch(partition)
        theirs = first_batch(data)
        if own is not None and theirs is None and row.log_start_offset < end:
            # The answer was full before this partition's turn: it comes first in another one.
            self._mirrors = {partition.name: mirror, **self._mirrors}
            return False
        if own is None:
            state.is_verified = True
        else:
            state.compare(own, theirs, is_compacted=partition.settings.compacts)
        return not state.failure

    async def _reset(self, mirror: Mirror) -> None:
        """The source does not have the offset that comes next."""
        partition, state = mirror.partition, mirror.state
        source_start = await self._source.list_offset(partition.name, EARLIEST, lane=FETCH_LANE)
        source_end = await self._source.list_offset(partition.name, LATEST, lane=FETCH_LANE)
        end = partition.log.end_offset
        if not mirror.is_led or mirror.asked_offset != end or not self._may_append(partition.topic_id):
            return
        action = state.out_of_range(source_start, source_end, end)
        if action is Action.RESTART:
            steps = restarting_at(partition, source_start, self._env.now_ms())
            await self._partitions.carry_out(partition, steps, lambda: restarted(partition), source_start)
            state.is_verified, state.last_epoch = True, -1
        elif action is Action.CONTINUE:
            state.retry(f"the source has {source_start} to {source_end}", self._env.monotonic_ms())
