"""Version 0. KIP-730: blocks of producer ids for brokers."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@controller_api(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    versions={
        0: "the first version (KIP-730)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def allocate_producer_ids(
    services: ControllerServices, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    try:
        block = await services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    except ApiError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
