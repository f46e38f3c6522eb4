"""Messages of the DescribeGroups API.

Generated from definitions/describe_groups.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeGroupsRequest(NamedTuple):
    """Versions 0-6, flexible from 5."""

    groups: Sequence[str] = ()
    include_authorized_operations: bool = False

    def response_class(self) -> type[DescribeGroupsResponse]:
        return DescribeGroupsResponse


class DescribedGroupMember(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: int = -2147483648


class DescribeGroupsResponse(NamedTuple):
    """Versions 0-6, flexible from 5."""

    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()
