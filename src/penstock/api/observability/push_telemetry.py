"""Version 0. KIP-714: a client pushes its metrics, which Prometheus finds among the broker's own and the console shows.

The payload is OpenTelemetry's, with any of Kafka's codecs or none. What cannot be read is refused as INVALID_RECORD.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.observability.get_telemetry_subscriptions import description_of
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@broker_api(
    ApiKey.PUSH_TELEMETRY,
    versions={
        0: "the first version (KIP-714)",
    },
)
async def push_telemetry(
    services: BrokerServices, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse:
    def charge(work_s: float) -> None:
        services.quotas.worked(context.client, context.client_id or "", work_s)

    try:
        await services.telemetry.push(request, description_of(context), charge)
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
