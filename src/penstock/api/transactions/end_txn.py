"""Versions 0-5. KIP-98 the end of a transaction; from 5 on it raises the producer's epoch (KIP-890)."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


@broker_api(
    ApiKey.END_TXN,
    versions={
        0: "the first version: commit or abort (KIP-98)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "the same fields; PRODUCER_FENCED may be returned (KIP-588)",
        3: "flexible versions (KIP-482)",
        4: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
        5: "each end raises the producer's epoch; the response contains id and epoch (KIP-890)",
    },
)
async def end_txn(services: BrokerServices, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    try:
        check(services.access, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return await services.transactions.end_txn(request, caller_of(context))
    except ApiError as error:
        return EndTxnResponse(error_code=error.code)
