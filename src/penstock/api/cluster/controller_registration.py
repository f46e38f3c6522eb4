"""Version 0. KIP-919: controllers make their addresses and features known."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, ControllerServices
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def make_controller_registration(services: ControllerServices) -> Handler:
    """The handler."""

    async def controller_registration(
        request: ControllerRegistrationRequest, context: RequestContext
    ) -> ControllerRegistrationResponse:
        try:
            await services.controller.register_controller(request)
        except ApiError as error:
            return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
        return ControllerRegistrationResponse(error_message=None)

    return controller_registration


API = Api(
    ApiKey.CONTROLLER_REGISTRATION,
    (0, 0),
    on_controller=guarded(Operation.CLUSTER_ACTION, make_controller_registration, ControllerRegistrationResponse),
)
