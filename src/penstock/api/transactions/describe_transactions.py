"""Version 0. KIP-664: the transactions of some ids, with their partitions."""

from __future__ import annotations

from penstock.api.access import check, split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


@broker_api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    versions={
        0: "the first version (KIP-664)",
    },
)
async def describe_transactions(
    services: BrokerServices, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            await _describe(services, transactional_id, context) for transactional_id in request.transactional_ids
        ]
    )


async def _describe(services: BrokerServices, transactional_id: str, context: RequestContext) -> TransactionState:
    try:
        check(services.access, context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            return TransactionState(ErrorCode.INVALID_REQUEST)
        found = await services.transactions.read(transactional_id, lambda shard: shard.describe(transactional_id))
    except ApiError as error:
        return TransactionState(error.code, transactional_id)
    seen, _ = await split_by_right(
        services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, found.topics, lambda topic: topic.topic
    )
    return found._replace(topics=seen)
