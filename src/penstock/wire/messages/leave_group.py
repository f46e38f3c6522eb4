"""Messages of the LeaveGroup API.

Generated from definitions/leave_group.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MemberIdentity(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(NamedTuple):
    """Versions 0-5, flexible from 4."""

    group_id: str = ""
    member_id: str = ""
    members: Sequence[MemberIdentity] = ()

    def response_class(self) -> type[LeaveGroupResponse]:
        return LeaveGroupResponse


class MemberResponse(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0


class LeaveGroupResponse(NamedTuple):
    """Versions 0-5, flexible from 4."""

    throttle_time_ms: int = 0
    error_code: int = 0
    members: Sequence[MemberResponse] = ()
