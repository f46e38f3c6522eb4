"""Version 0. KIP-714: a client pushes its metrics, which Prometheus finds among the broker's own and the console shows.

The payload is OpenTelemetry's, with any of Kafka's codecs or none. What cannot be read is refused as INVALID_RECORD.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.observability.get_telemetry_subscriptions import description_of
from penstock.model.errors import ApiError
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.runtime.telemetry import Telemetry
from penstock.wire.apis import ApiKey
from penstock.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

API = Api(
    ApiKey.PUSH_TELEMETRY,
    (0, 0),
    on_broker=lambda services: make_push_telemetry(services.telemetry, services.quotas),
)


def make_push_telemetry(telemetry: Telemetry, quotas: ClientQuotas) -> Handler:
    """The handler."""

    async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
        def charge(work_s: float) -> None:
            quotas.worked(context.client, context.client_id or "", work_s)

        try:
            await telemetry.push(request, description_of(context), charge)
        except ApiError as error:
            return PushTelemetryResponse(error_code=error.code)
        return PushTelemetryResponse()

    return push_telemetry
