"""Version 0. KIP-631: forget a broker that will not come back."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def make_unregister_broker(services: SharedServices) -> Handler:
    """The handler."""

    async def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
        try:
            await services.controller.unregister_broker(request.broker_id)
        except ApiError as error:
            return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
        return UnregisterBrokerResponse(error_message=None)

    return unregister_broker


API = shared_api(
    ApiKey.UNREGISTER_BROKER,
    (0, 0),
    guarded(Operation.ALTER, make_unregister_broker, UnregisterBrokerResponse),
    is_forwarded=True,
)
