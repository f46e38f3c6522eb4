"""Version 0. KIP-714: a client requests which metrics it is to push, and how often.

Clients without an instance id get one. Totals are requested as totals: the next push may go to another broker.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.telemetry.clients import ATTRIBUTE_LENGTH_MAX, ClientDescription
from penstock.model.access import ANONYMOUS
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@broker_api(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    versions={
        0: "the first version (KIP-714)",
    },
)
def get_telemetry_subscriptions(
    services: BrokerServices, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    try:
        return services.telemetry.subscribe(request.client_instance_id, description_of(context))
    except ApiError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)


def description_of(context: RequestContext) -> ClientDescription:
    """What the client of a request reports about itself."""
    client = context.client
    host, port = client.address[:2]
    # What is kept of a client must not grow with what it calls itself.
    client_id, software, version = (
        name[:ATTRIBUTE_LENGTH_MAX] for name in (context.client_id or "", client.software_name, client.software_version)
    )
    owner = host if client.principal == ANONYMOUS else client.principal
    return ClientDescription(client_id, software, version, host, port, owner)
