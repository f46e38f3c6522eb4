"""Versions 0-4. KIP-631 registration, KIP-858 log directories, KIP-966 clean stops."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, ControllerServices
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def make_broker_registration(services: ControllerServices) -> Handler:
    """The handler."""

    async def broker_registration(
        request: BrokerRegistrationRequest, context: RequestContext
    ) -> BrokerRegistrationResponse:
        try:
            return BrokerRegistrationResponse(broker_epoch=await services.controller.register_broker(request))
        except ApiError as error:
            return BrokerRegistrationResponse(error_code=error.code)

    return broker_registration


API = Api(
    ApiKey.BROKER_REGISTRATION,
    (0, 4),
    on_controller=guarded(Operation.CLUSTER_ACTION, make_broker_registration, BrokerRegistrationResponse),
)
