"""Messages of the PushTelemetry API.

Generated from definitions/push_telemetry.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class PushTelemetryRequest(NamedTuple):
    """Version 0, flexible from 0."""

    client_instance_id: bytes = ZERO_UUID
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""

    def response_class(self) -> type[PushTelemetryResponse]:
        return PushTelemetryResponse


class PushTelemetryResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
