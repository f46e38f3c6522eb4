"""Versions 0-5. KIP-98 the end of a transaction; from 5 on it raises the producer's epoch (KIP-890)."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def make_end_txn(services: BrokerServices) -> Handler:
    """The handler."""

    async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
        try:
            check(services.access, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            return await services.transactions.end_txn(request, caller_of(context))
        except ApiError as error:
            return EndTxnResponse(error_code=error.code)

    return end_txn


API = Api(ApiKey.END_TXN, (0, 5), on_broker=make_end_txn)
