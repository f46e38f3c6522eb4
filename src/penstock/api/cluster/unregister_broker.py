"""Version 0. KIP-631: forget a broker that will not come back."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@forwarded_api(
    ApiKey.UNREGISTER_BROKER,
    versions={
        0: "the first version (KIP-631)",
    },
    cluster_right=Operation.ALTER,
)
async def unregister_broker(
    services: SharedServices, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    try:
        await services.controller.unregister_broker(request.broker_id)
    except ApiError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_message=None)
