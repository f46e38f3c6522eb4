"""Messages of the ConsumerGroupHeartbeat API.

Generated from definitions/consumer_group_heartbeat.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicPartitions] | None = None

    def response_class(self) -> type[ConsumerGroupHeartbeatResponse]:
        return ConsumerGroupHeartbeatResponse


class Assignment(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
