"""Messages of the ConsumerGroupDescribe API.

Generated from definitions/consumer_group_describe.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ConsumerGroupDescribeRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False

    def response_class(self) -> type[ConsumerGroupDescribeResponse]:
        return ConsumerGroupDescribeResponse


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] = ()


class Member(NamedTuple):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: int = -1


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[Member] = ()
    authorized_operations: int = -2147483648


class ConsumerGroupDescribeResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()
