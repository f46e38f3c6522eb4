"""Messages of the GetTelemetrySubscriptions API.

Generated from definitions/get_telemetry_subscriptions.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class GetTelemetrySubscriptionsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    client_instance_id: bytes = ZERO_UUID

    def response_class(self) -> type[GetTelemetrySubscriptionsResponse]:
        return GetTelemetrySubscriptionsResponse


class GetTelemetrySubscriptionsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: Sequence[int] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: Sequence[str] = ()
