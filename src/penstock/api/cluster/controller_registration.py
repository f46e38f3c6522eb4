"""Version 0. KIP-919: controllers make their addresses and features known."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


@controller_api(
    ApiKey.CONTROLLER_REGISTRATION,
    versions={
        0: "the first version (KIP-919)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def controller_registration(
    services: ControllerServices, request: ControllerRegistrationRequest, context: RequestContext
) -> ControllerRegistrationResponse:
    try:
        await services.controller.register_controller(request)
    except ApiError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
    return ControllerRegistrationResponse(error_message=None)
