"""Messages of the BrokerHeartbeat API.

Generated from definitions/broker_heartbeat.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class BrokerHeartbeatRequest(NamedTuple):
    """Versions 0-2, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Sequence[bytes] = ()
    cordoned_log_dirs: Sequence[bytes] | None = None

    def response_class(self) -> type[BrokerHeartbeatResponse]:
        return BrokerHeartbeatResponse


class BrokerHeartbeatResponse(NamedTuple):
    """Versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
