"""Version 0. KIP-631: forget a broker that will not come back."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.model.errors import ApiError
from penstock.runtime.controller.controller import Controller
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def make_unregister_broker(controller: Controller) -> Handler:
    """The handler."""

    async def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
        try:
            await controller.unregister_broker(request.broker_id)
        except ApiError as error:
            return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
        return UnregisterBrokerResponse(error_message=None)

    return unregister_broker
