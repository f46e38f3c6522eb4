"""Messages of the Heartbeat API.

Generated from definitions/heartbeat.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class HeartbeatRequest(NamedTuple):
    """Versions 0-4, flexible from 4."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None

    def response_class(self) -> type[HeartbeatResponse]:
        return HeartbeatResponse


class HeartbeatResponse(NamedTuple):
    """Versions 0-4, flexible from 4."""

    throttle_time_ms: int = 0
    error_code: int = 0
