"""Versions 0-2. KIP-664: the transactional ids of this coordinator; KIP-994 by duration, KIP-1152 by pattern."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.transactions.transaction_pattern import compile_pattern
from penstock.core.transaction.listing import TransactionFilter
from penstock.core.transaction.states import BY_TITLE
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


@broker_api(
    ApiKey.LIST_TRANSACTIONS,
    versions={
        0: "the first version: filters by state and by producer id (KIP-664)",
        1: "a filter by how long transactions have been open (KIP-994)",
        2: "a filter by a pattern of transactional ids (KIP-1152)",
    },
)
async def list_transactions(
    services: BrokerServices, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    unknown = [title for title in request.state_filters if title not in BY_TITLE]
    try:
        pattern = request.transactional_id_pattern
        wanted = TransactionFilter(
            frozenset(BY_TITLE[title] for title in request.state_filters if title in BY_TITLE)
            if request.state_filters
            else None,
            frozenset(request.producer_id_filters) if request.producer_id_filters else None,
            request.duration_filter,
            compile_pattern(pattern) if pattern else None,
        )
        now_ms = services.env.now_ms()
        rows = await services.transactions.read_all(lambda shard: shard.listing(wanted, now_ms))
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    names = (row.transactional_id for row in rows)
    seen = {*services.access.allowed(context.client, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)}
    rows = [row for row in rows if row.transactional_id in seen]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
