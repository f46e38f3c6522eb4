"""Messages of the ShareGroupDescribe API.

Generated from definitions/share_group_describe.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ShareGroupDescribeRequest(NamedTuple):
    """Version 1, flexible from 1."""

    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False

    def response_class(self) -> type[ShareGroupDescribeResponse]:
        return ShareGroupDescribeResponse


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] = ()


class Member(NamedTuple):
    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    assignment: Assignment = Assignment()


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


class ShareGroupDescribeResponse(NamedTuple):
    """Version 1, flexible from 1."""

    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()
