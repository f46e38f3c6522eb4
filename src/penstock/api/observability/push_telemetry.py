"""Version 0. KIP-714: a client pushes its metrics, which Prometheus finds among the broker's own and the console shows.

The payload is OpenTelemetry's, with any of Kafka's codecs or none. What cannot be read is refused as INVALID_RECORD.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.observability.get_telemetry_subscriptions import description_of
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def make_push_telemetry(services: BrokerServices) -> Handler:
    """The handler."""

    async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
        def charge(work_s: float) -> None:
            services.quotas.worked(context.client, context.client_id or "", work_s)

        try:
            await services.telemetry.push(request, description_of(context), charge)
        except ApiError as error:
            return PushTelemetryResponse(error_code=error.code)
        return PushTelemetryResponse()

    return push_telemetry


API = Api(ApiKey.PUSH_TELEMETRY, (0, 0), on_broker=make_push_telemetry)
