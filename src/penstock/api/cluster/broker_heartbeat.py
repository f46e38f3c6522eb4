"""Versions 0-2. KIP-631 heartbeats, KIP-858 failed log directories, KIP-1066 cordoned ones.

The end of the connection that a broker's heartbeats come through shortens its session.
"""

from __future__ import annotations

from functools import partial

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@controller_api(
    ApiKey.BROKER_HEARTBEAT,
    versions={
        0: "the first version (KIP-631)",
        1: "ids of failed log directories (KIP-858)",
        2: "ids of cordoned log directories (KIP-1066)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def broker_heartbeat(
    services: ControllerServices, request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    client = context.client
    client.when_closed("heartbeats", partial(services.controller.connection_lost, request.broker_id, client))
    try:
        reply = await services.controller.heartbeat(request, client)
    except ApiError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
    )
