"""Versions 0-4. KIP-631 registration, KIP-858 log directories, KIP-966 clean stops."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


@controller_api(
    ApiKey.BROKER_REGISTRATION,
    versions={
        0: "the first version (KIP-631)",
        1: "whether the broker is migrating from ZooKeeper (KIP-866)",
        2: "ids of the broker's log directories (KIP-858)",
        3: "the broker epoch before a clean stop (KIP-966)",
        4: "the same fields; also features whose lowest supported level is 0",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def broker_registration(
    services: ControllerServices, request: BrokerRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    try:
        return BrokerRegistrationResponse(broker_epoch=await services.controller.register_broker(request))
    except ApiError as error:
        return BrokerRegistrationResponse(error_code=error.code)
