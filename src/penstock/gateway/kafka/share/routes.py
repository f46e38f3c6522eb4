"""Routes requests about share groups to the leaders of a topic's partitions, and settles records there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.core.share.acknowledgements import AckType
from penstock.gateway.kafka.broker_requests import RETRY_AFTER, BrokerWire, check
from penstock.gateway.web.problem import Problem
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest, SettleShareRecordResponse

NOT_HELD = 40905
REMEMBER_S = 5.0
REMEMBERED_MAX = 10_000
# The backoff before each try to settle a record.
PAUSES_S = (0.0, 0.1, 0.3, 1.0, 2.0)
# Another broker, or the same one a moment later, may respond without the error.
PASSING = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)


class RoutedDelivery(NamedTuple):
    """One delivery of a record to a member of a group.

    `attempt` counts the record's deliveries that the leader of this `incarnation` knows of.
    """

    group: str
    member_id: str
    partition: int
    offset: int
    attempt: int
    incarnation: int = -1


class TopicRoute(NamedTuple):
    """A topic's id, and the leaders of its partitions; those without one are left out."""

    topic_id: Uuid
    partition_count: int
    leaders: Mapping[int, Address]


class ShareRoutes:
    """Topics as the brokers describe them, cached for some seconds."""

    def __init__(self, wire: BrokerWire) -> None:
        self._wire = wire
        self._known: dict[str, tuple[float, TopicRoute]] = {}

    async def topic(self, name: str) -> TopicRoute:
        """A topic's leaders; raises Problem if there is no such topic."""
        known = self._known.get(name)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await self._wire.ask(request)
        row = response.topics[0]
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Problem(40401, f"there is no topic {name}", "GET /topics lists the topics; POST /topics creates one")
        check(row.error_code, None, f"topic {name}")
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        leaders = {
            one.partition_index: brokers[one.leader_id]
            for one in sorted(row.partitions, key=lambda one: one.partition_index)
            if one.leader_id in brokers
        }
        route = TopicRoute(row.topic_id, len(row.partitions), leaders)
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[name] = (time.monotonic() + REMEMBER_S, route)
        return route

    def forget(self, name: str) -> None:
        """Drop a cached topic, because its leaders may have changed."""
        self._known.pop(name, None)

    async def settle(self, topic: str, delivery: RoutedDelivery, kind: AckType) -> int:
        """Acknowledge a record; returns a lock's duration in milliseconds. 409 if it is no longer locked."""
        reason = ""
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            route = await self.topic(topic)
            if delivery.partition >= route.partition_count:
                raise Problem(
                    40402, f"topic {topic} has no partition {delivery.partition}", "send the messageId unchanged"
                )
            leader = route.leaders.get(delivery.partition)
            request = SettleShareRecordRequest(
                delivery.group,
                delivery.member_id,
                route.topic_id,
                delivery.partition,
                delivery.offset,
                delivery.attempt,
                kind,
                delivery.incarnation,
            )
            try:
                if leader is None:
                    raise NoAnswer(f"partition {delivery.partition} has no leader")
                response = await self._wire.ask_at(leader, request)
            except NoAnswer as error:
                reason = str(error)
            else:
                if response.error_code not in PASSING:
                    _check_settled(response, delivery)
                    return response.lock_ms
                reason = response.error_message or ""
            self.forget(topic)
        raise Problem(50301, f"the brokers cannot settle it now: {reason}", "try again", headers=RETRY_AFTER)


def _check_settled(response: SettleShareRecordResponse, delivery: RoutedDelivery) -> None:
    if response.error_code == ErrorCode.INVALID_RECORD_STATE:
        raise Problem(
            NOT_HELD,
            f"offset {delivery.offset} of partition {delivery.partition}, attempt {delivery.attempt}, is not held "
            f"any more: {response.error_message}",
            "settle or extend each message once, before its lock expires",
        )
    check(response.error_code, response.error_message, f"group {delivery.group}")
