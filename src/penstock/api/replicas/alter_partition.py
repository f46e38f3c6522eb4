"""Versions 2-3. KIP-497 ISR changes by leaders, KIP-841 topic ids and fenced replicas, KIP-903 broker epochs."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, ControllerServices
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


def make_alter_partition(services: ControllerServices) -> Handler:
    """The handler."""

    async def alter_partition(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
        try:
            return AlterPartitionResponse(topics=await services.controller.alter_partition(request))
        except ApiError as error:
            return AlterPartitionResponse(error_code=error.code)

    return alter_partition


API = Api(
    ApiKey.ALTER_PARTITION,
    (2, 3),
    on_controller=guarded(Operation.CLUSTER_ACTION, make_alter_partition, AlterPartitionResponse),
)
