"""Versions 0-5. KIP-98 producer ids for idempotence and for transactional ids, KIP-360 producers that continue."""

from __future__ import annotations

from collections.abc import Coroutine

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@broker_api(
    ApiKey.INIT_PRODUCER_ID,
    versions={
        0: "the first version: a producer id for a transactional id, or for none (KIP-98)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
        3: "producers send the id and epoch they have, to continue with them (KIP-360)",
        4: "the same fields; PRODUCER_FENCED may be returned (KIP-588)",
        5: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
    },
)
def init_producer_id(
    services: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Coroutine[object, object, InitProducerIdResponse]:
    if request.transactional_id is not None:
        if not services.access.allows(
            context.client, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        ):
            return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not request.transactional_id:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
        return _start(services, request, context)
    if not _may_be_idempotent(services, context):
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _allot(services)


def _may_be_idempotent(services: BrokerServices, context: RequestContext) -> bool:
    """A client that may write to some topic may do so idempotently."""
    client = context.client
    return services.access.allows_on_cluster(
        client, Operation.IDEMPOTENT_WRITE, quiet=True
    ) or services.access.allows_some(client, Operation.WRITE, ResourceType.TOPIC)


async def _start(
    services: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    try:
        return await services.transactions.init_producer_id(request, caller_of(context))
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code)


async def _allot(services: BrokerServices) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code)
