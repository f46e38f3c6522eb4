"""Versions 2-3. KIP-497 ISR changes by leaders, KIP-841 topic ids and fenced replicas, KIP-903 broker epochs."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@controller_api(
    ApiKey.ALTER_PARTITION,
    versions={
        2: "the first version still served: topic ids instead of names (KIP-841)",
        3: "broker epochs of the new in-sync replicas in the request (KIP-903)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def alter_partition(
    services: ControllerServices, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    try:
        return AlterPartitionResponse(topics=await services.controller.alter_partition(request))
    except ApiError as error:
        return AlterPartitionResponse(error_code=error.code)
