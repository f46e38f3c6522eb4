"""Version 0. KIP-664: the transactions of some ids, with their partitions."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.transactions import Transactions
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

API = Api(
    ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), on_broker=lambda services: make_describe_transactions(services.transactions)
)


def make_describe_transactions(transactions: Transactions) -> Handler:
    """The handler."""

    async def describe_transactions(
        request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[await describe(transactional_id) for transactional_id in request.transactional_ids]
        )

    async def describe(transactional_id: str) -> TransactionState:
        if not transactional_id:
            return TransactionState(ErrorCode.INVALID_REQUEST)
        try:
            return await transactions.read(transactional_id, lambda shard: shard.describe(transactional_id))
        except ApiError as error:
            return TransactionState(error.code, transactional_id)

    return describe_transactions
