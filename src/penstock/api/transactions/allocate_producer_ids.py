"""Version 0. KIP-730: blocks of producer ids for brokers."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, ControllerServices
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def make_allocate_producer_ids(services: ControllerServices) -> Handler:
    """The handler."""

    async def allocate_producer_ids(
        request: AllocateProducerIdsRequest, context: RequestContext
    ) -> AllocateProducerIdsResponse:
        try:
            block = await services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        except ApiError as error:
            return AllocateProducerIdsResponse(error_code=error.code)
        return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))

    return allocate_producer_ids


API = Api(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    (0, 0),
    on_controller=guarded(Operation.CLUSTER_ACTION, make_allocate_producer_ids, AllocateProducerIdsResponse),
)
