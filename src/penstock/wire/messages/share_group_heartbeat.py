"""Messages of the ShareGroupHeartbeat API.

Generated from definitions/share_group_heartbeat.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ShareGroupHeartbeatRequest(NamedTuple):
    """Version 1, flexible from 1."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None

    def response_class(self) -> type[ShareGroupHeartbeatResponse]:
        return ShareGroupHeartbeatResponse


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] = ()


class ShareGroupHeartbeatResponse(NamedTuple):
    """Version 1, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
