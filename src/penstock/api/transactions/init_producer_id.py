"""Versions 0-5. KIP-98 producer ids for idempotence and for transactional ids, KIP-360 producers that go on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def make_init_producer_id(services: BrokerServices) -> Handler:
    """The handler."""

    def init_producer_id(
        request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
        if request.transactional_id is not None:
            if not services.access.allows(
                context.client, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
            ):
                return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if not request.transactional_id:
                return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
            return start(request, context)
        if not may_be_idempotent(context):
            return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return allot()

    def may_be_idempotent(context: RequestContext) -> bool:
        """A client that may write to some topic may do so idempotently."""
        client = context.client
        return services.access.allows_on_cluster(
            client, Operation.IDEMPOTENT_WRITE, quiet=True
        ) or services.access.allows_some(client, Operation.WRITE, ResourceType.TOPIC)

    async def start(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
        try:
            return await services.transactions.init_producer_id(request, caller_of(context))
        except ApiError as error:
            return InitProducerIdResponse(error_code=error.code)

    async def allot() -> InitProducerIdResponse:
        try:
            return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
        except ApiError as error:
            return InitProducerIdResponse(error_code=error.code)

    return init_producer_id


API = Api(ApiKey.INIT_PRODUCER_ID, (0, 5), on_broker=make_init_producer_id)
