"""The coordinator shards of an internal topic on this broker.

Each partition of the topic that this broker leads has one shard; it is loaded and unloaded with leadership. While it is
being loaded every request for it fails with COORDINATOR_LOAD_IN_PROGRESS. A shard that cannot be loaded is
loaded again after a pause, which doubles, until that succeeds or leadership moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache, partial
from operator import mul
from struct import unpack
from typing import Generic

from penstock.core.contract import Effects
from penstock.core.contract import Record as CoordinatorRecord
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.shard_host import Confirm, ShardHost, ShardT, always
from penstock.runtime.env import Env
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.partition import Partition

# The cause of a failed append may last: too few in-sync replicas, a full disk.
RELOAD_PAUSE_S = 0.2
RELOAD_PAUSE_MAX_S = 10.0
# Every heartbeat looks up its group's partition.
PARTITIONS_REMEMBERED_MAX = 16_384
# Only of names up to this length: any client chooses names, and what is remembered must not grow with them.
KEY_REMEMBERED_MAX = 256
HASHED_AT_ONCE = 64
_POWERS = [31**power for power in range(HASHED_AT_ONCE - 1, -1, -1)]

logger = logging.getLogger("penstock.coordinator")


class Coordinator(Generic[ShardT]):
    """All shards of one internal topic on this broker."""

    def __init__(
        self,
        env: Env,
        kind: str,
        topic: str,
        make_shard: Callable[[], ShardT],
        count: Callable[[list[CoordinatorRecord]], None] = lambda _: None,
        linger_ms: int = 0,
        *,
        has_deltas: bool = False,
    ) -> None:
        """`count` is called with all records of the shards; those that may wait do so for `linger_ms`.

        With `has_deltas` records of one key add up: loading replays them all, not only the latest of each key.
        """
        self._env = env
        self._has_deltas = has_deltas
        self._linger_ms = linger_ms
        self._count = count
        self._kind = kind
        self.topic = topic
        self._make_shard = make_shard
        self._hosts: dict[int, ShardHost[ShardT]] = {}
        # What shards that are being loaded must not miss, by partition.
        self._postponed: dict[int, list[Callable[[ShardT], Effects]]] = {}
        # By partition, the last pause before its shard was loaded again after a failed append, and when that was.
        self._reloads: dict[int, tuple[float, int]] = {}
        self._is_closed = False
        # Finds out whether this broker leads a partition still.
        self.confirm: Confirm = always

    def take(self, partition: Partition, *, pause_s: float = 0.0) -> None:
        """This broker now leads a partition; load its shard."""
        if partition.name.topic != self.topic or partition.name.partition in self._hosts or not partition.is_leader:
            return
        if self._is_closed:
            return
        index = partition.name.partition
        host = self._hosts[index] = self._make_host(partition)
        if partition.log.end_offset == partition.log.start_offset:
            host.is_loaded = True
        else:
            self._env.spawn(self._load(host, partition, pause_s), f"load {partition.name}")

    def _make_host(self, partition: Partition) -> ShardHost[ShardT]:
        return ShardHost(
            self._env,
            self._kind,
            partition,
            self._make_shard(),
            partial(self._reload, partition),
            self._count,
            self._linger_ms,
            has_deltas=self._has_deltas,
            confirm=self.confirm,
        )

    def leave(self, partition: Partition) -> None:
        """This broker no longer leads a partition."""
        if partition.name.topic == self.topic:
            self._postponed.pop(partition.name.partition, None)
            self._reloads.pop(partition.name.partition, None)
            host = self._hosts.pop(partition.name.partition, None)
            if host is not None:
                host.leave()

    def close(self) -> None:
        """Stop hosting every shard, for good; pending records are still written."""
        self._is_closed = True
        # A shard that cannot be written is left at once.
        for host in [*self._hosts.values()]:
            host.flush()
            host.leave()
        self._hosts.clear()
        self._postponed.clear()

    def host(self, index: int) -> ShardHost[ShardT]:
        """The host of one partition's shard, once loaded; raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        found = self._hosts.get(index)
        if found is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"this broker does not lead {self.topic}-{index}")
        if not found.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded")
        return found

    def hosts(self) -> list[ShardHost[ShardT]]:
        """Every host whose shard is loaded."""
        return [host for host in self._hosts.values() if host.is_loaded]

    def perform_on_all(self, work: Callable[[ShardT], Effects]) -> None:
        """Do something with every shard, with one that is being loaded as soon as it is.

        It is done again if what it records is not committed, so it must do nothing where it was done before.
        """
        for index, host in [*self._hosts.items()]:
            if host.is_loaded:
                self._perform(index, host, work)
            else:
                self._postponed.setdefault(index, []).append(work)

    def _perform(self, index: int, host: ShardHost[ShardT], work: Callable[[ShardT], Effects]) -> None:
        """Do something with a shard; if what it records cannot be appended, again as soon as the shard is reloaded.

        Not later: by then a request may have recorded what the work must not undo.
        """
        effects = work(host.shard)
        host.perform(effects)
        committed = host.settled() if effects.records else None
        if committed is not None:
            committed.add_done_callback(lambda done: self._repeat_if_lost(index, host, work, done))

    def _repeat_if_lost(
        self,
        index: int,
        host: ShardHost[ShardT],
        work: Callable[[ShardT], Effects],
        committed: asyncio.Future[None],
    ) -> None:
        successor = self._hosts.get(index)
        if committed.cancelled() or committed.exception() is None or successor is None or successor is host:
            # It is in the log, or another broker leads.
            return
        if successor.is_loaded:
            self._perform(index, successor, work)
        else:
            self._postponed.setdefault(index, []).append(work)

    @property
    def is_loading(self) -> bool:
        """Whether any shard is still being loaded."""
        return any(not host.is_loaded for host in self._hosts.values())

    @property
    def loading_count(self) -> int:
        """How many shards are still being loaded."""
        return sum(not host.is_loaded for host in self._hosts.values())

    def _reload(self, partition: Partition) -> None:
        """Load a shard again that could not be written; after a pause that doubles while it fails."""
        index, now_ms = partition.name.partition, self._env.monotonic_ms()
        pause_s, reloaded_ms = self._reloads.get(index, (0.0, 0))
        if now_ms - reloaded_ms > 2_000 * RELOAD_PAUSE_MAX_S:
            pause_s = 0.0
        pause_s = min(max(2 * pause_s, RELOAD_PAUSE_S), RELOAD_PAUSE_MAX_S)
        self.leave(partition)
        self._reloads[index] = pause_s, now_ms
        if not partition.log.is_failed:
            self.take(partition, pause_s=pause_s)

    async def _load(self, host: ShardHost[ShardT], partition: Partition, pause_s: float) -> None:
        """Load the shard of `host`, or of the hosts that replace it after failures, until this broker leaves it."""
        index = partition.name.partition
        while True:
            if pause_s:
                await asyncio.sleep(pause_s)
            if self._hosts.get(index) is not host:
                return
            started_ms = self._env.monotonic_ms()
            try:
                await host.load()
            except ApiError as error:
                if self._hosts.get(index) is not host:
                    # Leadership has moved, and the log may have been truncated during the read.
                    return
                note_read_failure(partition, error)
                pause_s = min(max(2 * pause_s, RELOAD_PAUSE_S), RELOAD_PAUSE_MAX_S)
                logger.error("cannot load %s, next try in %g s: %s", partition.name, pause_s, error)
                # Some of the log may have been replayed into the shard.
                host.leave()
                host = self._hosts[index] = self._make_host(partition)
                continue
            if host.is_loaded:
                for work in self._postponed.pop(index, ()):
                    self._perform(index, host, work)
                logger.info("loaded %s in %d ms", partition.name, self._env.monotonic_ms() - started_ms)
            return


def java_hash(text: str) -> int:
    """Java's String.hashCode, by which Kafka maps a group to a partition."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(data) // 2}H", data)
    value = 0
    # A name may have 32,767 characters, so a piece at a time.
    for start in range(0, len(units), HASHED_AT_ONCE):
        piece = units[start : start + HASHED_AT_ONCE]
        powers = _POWERS[HASHED_AT_ONCE - len(piece) :]
        value = (value * 31 ** len(piece) + sum(map(mul, piece, powers))) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic that a group or a transactional id belongs to."""
    return _remembered(key, partitions) if len(key) <= KEY_REMEMBERED_MAX else _partition_for(key, partitions)


def _partition_for(key: str, partitions: int) -> int:
    hashed = java_hash(key)
    # Java's smallest integer has no absolute value; Kafka uses 0.
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


_remembered = lru_cache(maxsize=PARTITIONS_REMEMBERED_MAX)(_partition_for)
