"""Messages of the SyncGroup API.

Generated from definitions/sync_group.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SyncGroupRequestAssignment(NamedTuple):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(NamedTuple):
    """Versions 0-5, flexible from 4."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[SyncGroupRequestAssignment] = ()

    def response_class(self) -> type[SyncGroupResponse]:
        return SyncGroupResponse


class SyncGroupResponse(NamedTuple):
    """Versions 0-5, flexible from 4."""

    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
