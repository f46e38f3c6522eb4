"""All fetchers of this broker: which one follows which partition, as leaders come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

from penstock.config.node import NodeSettings
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.metrics.histogram import Histogram
from penstock.core.replica.throttle import UNLIMITED, Throttle
from penstock.runtime.env import Env
from penstock.runtime.live_settings import ALL_BROKERS
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.peer import Peer
from penstock.runtime.replication.fetcher import FetcherSettings, Key, ReplicaFetcher
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.tier_start import HistoryOf

FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_RATE = "leader.replication.throttled.rate"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class ReplicaFetchers:
    """One fetcher for each leader and slot; a partition keeps its slot when its leader changes."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        make_peer: Callable[[int], Peer],
        settings: FetcherSettings,
        broker_epoch: Callable[[], int],
        throttle: Throttle | None = None,
        history_of: HistoryOf | None = None,
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._make_peer = make_peer
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._history_of = history_of
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._assigned: dict[Key, ReplicaFetcher] = {}
        self._is_stopped = False
        # Seconds from a former leader's last response to the moment that this broker took over a partition.
        self.takeovers = Histogram()

    def start(self) -> None:
        """Follow the leaders of all partitions here from now on."""
        self._partitions.on_follower(self._assign)
        self._partitions.on_leader(self._take_over)
        self._partitions.on_removed(self._release)
        self._partitions.on_directory_failed(self._release_all)
        for partition in self._partitions:
            self._assign(partition)

    def stop(self) -> None:
        """Stop following, for good."""
        self._is_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._assigned.clear()

    def spread(self, settings: NodeSettings) -> None:
        """Follow each leader over num.replica.fetchers connections from now on."""
        if settings.num_replica_fetchers != self._settings.fetchers:
            self._settings = replace(self._settings, fetchers=settings.num_replica_fetchers)
            for partition in list(self._partitions):
                self._assign(partition)

    @property
    def lag_max(self) -> int:
        """The largest number of committed records that a partition lacks."""
        return max((fetcher.lag_max for fetcher in self._fetchers.values()), default=0)

    def _assign(self, partition: Partition) -> None:
        self._release(partition)
        if self._is_stopped or partition.is_leader or partition.leader_id < 0 or partition.log.is_failed:
            return
        fetcher = self._fetcher(partition.leader_id, crc32(str(partition.name).encode()) % self._settings.fetchers)
        self._assigned[partition.topic_id, partition.name.partition] = fetcher
        fetcher.add(partition)

    def _take_over(self, partition: Partition) -> None:
        fetcher = self._assigned.get((partition.topic_id, partition.name.partition))
        if fetcher is not None:
            self.takeovers.observe((self._env.monotonic_ms() - fetcher.answered_ms) / 1000)
        self._release(partition)

    def _release(self, partition: Partition) -> None:
        key = partition.topic_id, partition.name.partition
        fetcher = self._assigned.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)
            if fetcher.is_idle:
                # It may get another partition in this turn.
                asyncio.get_running_loop().call_soon(self._close_idle)

    def _release_all(self, directory: LogDirectory) -> None:
        """Fetch nothing for a failed directory: its replicas would seem to keep up while nothing is written."""
        for name in directory.partitions:
            partition = self._partitions.get(*name)
            if partition is not None:
                self._release(partition)

    def _close_idle(self) -> None:
        """Close fetchers without partitions; one of a dead leader would keep waiting for a response."""
        for place, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle:
                fetcher.close()
                del self._fetchers[place]

    def _fetcher(self, leader_id: int, slot: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get((leader_id, slot))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, slot] = ReplicaFetcher(
                self._env,
                self._partitions,
                leader_id,
                self._make_peer(leader_id),
                self._settings,
                self._broker_epoch,
                self._throttle,
                self._history_of,
            )
        return fetcher


def throttled_rate(image: Image, node_id: int, name: str) -> Callable[[], int]:
    """The current rate of a replication throttle, for this broker or for all; unlimited if it is not set."""

    def rate() -> int:
        for resource in (str(node_id), ALL_BROKERS):
            found = image.overrides(ResourceType.BROKER, resource).get(name)
            if found is not None:
                return int(found)
        return UNLIMITED

    return rate


def fetcher_settings(settings: NodeSettings) -> FetcherSettings:
    """The fetcher's part of the node's settings."""
    return FetcherSettings(
        fetchers=settings.num_replica_fetchers,
        max_bytes=settings.replica_fetch_max_bytes,
        response_max_bytes=settings.replica_fetch_response_max_bytes,
        min_bytes=settings.replica_fetch_min_bytes,
        wait_max_ms=settings.replica_fetch_wait_max_ms,
        backoff_ms=settings.replica_fetch_backoff_ms,
        timeout_ms=settings.replica_socket_timeout_ms,
    )
