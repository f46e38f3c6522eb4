"""A snapshot of the cluster's brokers, partitions and quorum: rarely refreshed, kept while brokers do not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.operations.topics import Partition, describe_cluster, list_topics
from penstock.client.view import BrokerView, PartitionView, brokers_of
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.rest.console.quorum import describe_quorum
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest

FRESH_S = 1.0
# A snapshot of very many partitions is refreshed less often, so that it costs at most a tenth of a core.
FRESH_PER_COST = 10
PATIENCE_S = 2.0
# While the last snapshot is this recent, a caller waits only briefly for the next one.
YOUNG_S = 10.0
YOUNG_PATIENCE_S = 0.15
METADATA_TIMEOUT_S = 8.0
PROBE_TIMEOUT_MS = 2_500
QUORUM_TIMEOUT_S = 2.5
# Internal topics: names that start with two underscores, and the registry's topic.
INTERNAL_NAMES = {"_schemas"}


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster at one moment. `notes` are the reasons for missing parts.

    The controller is the quorum's leader: -1 if there is none, None if it is unknown. It is not the controller of
    Metadata responses, which may be any broker: brokers forward requests to the real one.
    """

    taken_ms: int
    controller: int | None
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, tuple[PartitionView, ...]]
    notes: tuple[str, ...] = field(default=())

    def alive(self) -> list[BrokerView]:
        """The brokers that should answer."""
        return [broker for broker in self.brokers.values() if not broker.fenced]


class ClusterSnapshots:
    """The latest snapshot; while brokers are slow or down, the last one that succeeded, with its time."""

    def __init__(self, admin: Admin, wire: BrokerWire) -> None:
        self._admin = admin
        self._wire = wire
        self._last: ClusterSnapshot | None = None
        self._fresh_until = 0.0
        # Why the snapshot is older than it should be, if it is.
        self.failure: Problem | None = None
        self._refreshing: asyncio.Task[None] | None = None
        # Brokers that did not respond to the last probe, whether fenced or not.
        self.silent: frozenset[int] = frozenset()

    def expire(self) -> None:
        """Make the next call take a new snapshot."""
        self._fresh_until = 0.0

    async def latest(self) -> ClusterSnapshot:
        """A fresh snapshot, or the last one if that takes more than two seconds; raises Problem without one."""
        if self._last is not None and time.monotonic() < self._fresh_until:
            return self._last
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="console-snapshot")
        await asyncio.wait([self._refreshing], timeout=self._patience_s())
        if self._last is None:
            raise self.failure or Problem(50301, "no broker has answered yet", "check that the brokers are running")
        return self._last

    def _patience_s(self) -> float:
        if self._last is None:
            return METADATA_TIMEOUT_S + 1
        return YOUNG_PATIENCE_S if time.monotonic() < self._fresh_until + YOUNG_S else PATIENCE_S

    async def _refresh(self) -> None:
        started = time.monotonic()
        try:
            taking = asyncio.ensure_future(self._take())
            # Without a quorum no broker gets fenced, so brokers that do not answer must be detected here.
            self.silent = await self._find_silent()
            self._last = await taking
            self.failure = None
            self._fresh_until = time.monotonic() + max(FRESH_S, (time.monotonic() - started) * FRESH_PER_COST / 4)
        except Problem as problem:
            self.failure = problem
        finally:
            self._refreshing = None

    async def _take(self) -> ClusterSnapshot:
        parts = asyncio.gather(self._admin.brokers.run(list_topics), self._registered(), self._quorum_leader())
        try:
            listed, (named, brokers, notes), controller = await asyncio.wait_for(parts, METADATA_TIMEOUT_S)
        except TimeoutError:
            raise Problem(50301, "no broker answered in time", "check that the brokers are running") from None
        if controller is None and named < 0:
            controller = -1
        topics = {topic.name: tuple(map(_partition, topic.partitions)) for topic in listed}
        return ClusterSnapshot(time.time_ns() // 1_000_000, controller, brokers, topics, notes)

    async def _find_silent(self) -> frozenset[int]:
        if self._last is None:
            return frozenset()
        node_ids = {broker.address: broker.node_id for broker in self._last.alive()}
        answers = await self._wire.ask_each(node_ids, ApiVersionsRequest(), timeout_ms=PROBE_TIMEOUT_MS)
        return frozenset(number for address, number in node_ids.items() if address not in answers)

    async def _registered(self) -> tuple[int, dict[int, BrokerView], tuple[str, ...]]:
        """The controller that brokers name, and all brokers; only those that are up, with the reason, if it must be."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        try:
            response = await self._wire.ask(request)
        except Problem as problem:
            up = await self._admin.brokers.run(describe_cluster)
            controller = -1 if up.controller is None else up.controller
            return controller, {broker.node_id: broker for broker in up.brokers}, (problem.message,)
        return response.controller_id, brokers_of(response), ()

    async def _quorum_leader(self) -> int | None:
        try:
            quorum = await asyncio.wait_for(describe_quorum(self._wire), QUORUM_TIMEOUT_S)
        except (Problem, TimeoutError):
            return None
        return quorum.leader


def _partition(partition: Partition) -> PartitionView:
    return PartitionView(partition.leader, partition.replicas, partition.in_sync_replicas)


def is_internal(name: str) -> bool:
    """Whether a topic belongs to the cluster rather than to users."""
    return name.startswith("__") or name in INTERNAL_NAMES
