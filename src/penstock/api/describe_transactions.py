"""Version 0. KIP-664: the transactions of some ids, with their partitions."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.transactions import Transactions
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
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
