"""Messages of the JoinGroup API.

Generated from definitions/join_group.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class JoinGroupRequestProtocol(NamedTuple):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(NamedTuple):
    """Versions 0-9, flexible from 6."""

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    reason: str | None = None

    def response_class(self) -> type[JoinGroupResponse]:
        return JoinGroupResponse


class JoinGroupResponseMember(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""


class JoinGroupResponse(NamedTuple):
    """Versions 0-9, flexible from 6."""

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: Sequence[JoinGroupResponseMember] = ()
