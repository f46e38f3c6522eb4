"""The cluster at a glance: brokers, partitions, quorum; asked for rarely, answered at once, kept while brokers fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.view import BrokerView, PartitionView, brokers_of
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.failures import problem_of
from penstock.gateway.kafka.wire import BrokerWire
from penstock.gateway.rest.console.quorum import ask_quorum
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

FRESH_S = 1.0
# A cluster with very many partitions is asked less often, so that looking at it costs at most a tenth of a core.
FRESH_PER_COST = 10
PATIENCE_S = 2.0
# While a picture is this young, a caller waits for the next one only a moment.
YOUNG_S = 10.0
YOUNG_PATIENCE_S = 0.15
METADATA_TIMEOUT_S = 8.0
PROBE_TIMEOUT_MS = 2_500
QUORUM_TIMEOUT_S = 2.5


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything at one moment. `notes` say what could not be asked.

    The controller is the quorum's leader, -1 where there is none, None where nobody says. It is not what brokers tell
    their clients: those may take any broker for it, which forwards what only the controller decides.
    """

    taken_ms: int
    controller: int | None
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, tuple[PartitionView, ...]]
    notes: tuple[str, ...] = field(default=())

    def alive(self) -> list[BrokerView]:
        """The brokers that should answer."""
        return [broker for broker in self.brokers.values() if not broker.fenced]


class Pictures:
    """The latest picture. While brokers are slow or gone, the last one is what there is, and it says its age."""

    def __init__(self, admin: Admin, wire: BrokerWire) -> None:
        self._admin = admin
        self._wire = wire
        self._last: Picture | None = None
        self._fresh_until = 0.0
        self._failure: Problem | None = None
        self._refreshing: asyncio.Task[None] | None = None
        # Brokers that did not answer when they were last asked, whatever the cluster says of them.
        self.silent: frozenset[int] = frozenset()

    @property
    def failure(self) -> Problem | None:
        """Why the picture is older than it should be, if it is."""
        return self._failure

    def expire(self) -> None:
        """Let the next picture be a new one."""
        self._fresh_until = 0.0

    async def latest(self) -> Picture:
        """A fresh picture, or within two seconds the last; a Problem where there never was one."""
        if self._last is not None and time.monotonic() < self._fresh_until:
            return self._last
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="console-picture")
        await asyncio.wait([self._refreshing], timeout=self._patience_s())
        if self._last is None:
            raise self._failure or Problem(503, 50301, "no broker has answered yet", "check that the brokers run")
        return self._last

    def _patience_s(self) -> float:
        if self._last is None:
            return METADATA_TIMEOUT_S + 1
        return YOUNG_PATIENCE_S if time.monotonic() < self._fresh_until + YOUNG_S else PATIENCE_S

    async def _refresh(self) -> None:
        started = time.monotonic()
        try:
            taking = asyncio.ensure_future(self._take())
            # Without a majority nobody is fenced any more, so who is silent has to be found out.
            self.silent = await self._find_silent()
            self._last = await taking
            self._failure = None
            self._fresh_until = time.monotonic() + max(FRESH_S, (time.monotonic() - started) * FRESH_PER_COST / 4)
        except Problem as problem:
            self._failure = problem
        finally:
            self._refreshing = None

    async def _take(self) -> Picture:
        asked = asyncio.ensure_future(self._registered())
        leader = asyncio.ensure_future(self._quorum_leader())
        try:
            metadata = await asyncio.to_thread(self._admin.client.list_topics, timeout=METADATA_TIMEOUT_S)
        except KafkaException as error:
            asked.cancel()
            leader.cancel()
            raise problem_of(error) from None
        brokers = {each.id: BrokerView(each.id, str(each.host), int(each.port)) for each in metadata.brokers.values()}
        named, registered, notes = await asked
        controller = await leader
        if controller is None and (named if named is not None else metadata.controller_id) < 0:
            controller = -1
        # What librdkafka remembers may lag behind; the cluster's own word on who is fenced wins.
        brokers = {**brokers, **registered} if registered else brokers
        self._wire.know(broker.address for broker in brokers.values())
        topics = {name: _partitions(topic) for name, topic in sorted(metadata.topics.items())}
        return Picture(
            time.time_ns() // 1_000_000,
            controller,
            dict(sorted(brokers.items())),
            topics,
            notes,
        )

    async def _find_silent(self) -> frozenset[int]:
        if self._last is None or not self._wire.is_usable:
            return frozenset()
        places = {broker.address: broker.node_id for broker in self._last.alive()}
        answers = await self._wire.ask_each(places, ApiVersionsRequest(), timeout_ms=PROBE_TIMEOUT_MS)
        return frozenset(number for address, number in places.items() if address not in answers)

    async def _registered(self) -> tuple[int | None, dict[int, BrokerView], tuple[str, ...]]:
        """Who is named as controller, and all brokers with those that are fenced, where that can be asked."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        try:
            response: DescribeClusterResponse = await self._wire.ask(request)
        except Problem as problem:
            return None, {}, (problem.message,)
        return response.controller_id, brokers_of(response), ()

    async def _quorum_leader(self) -> int | None:
        try:
            quorum = await asyncio.wait_for(ask_quorum(self._wire), QUORUM_TIMEOUT_S)
        except (Problem, TimeoutError):
            return None
        return quorum.leader


def _partitions(topic: Any) -> tuple[PartitionView, ...]:
    found = topic.partitions
    return tuple(
        PartitionView(found[number].leader, tuple(found[number].replicas), tuple(found[number].isrs))
        for number in sorted(found)
    )
