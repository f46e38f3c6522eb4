"""Versions 0-5. KIP-98 the end of a transaction; from 5 on it raises the producer's epoch (KIP-890)."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.runtime.coordinator.transactions import Transactions
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

API = Api(ApiKey.END_TXN, (0, 5), on_broker=lambda services: make_end_txn(services.transactions, services.access))


def make_end_txn(transactions: Transactions, access: AccessControl) -> Handler:
    """The handler."""

    async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
        try:
            check(access, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            return await transactions.end_txn(request, caller_of(context))
        except ApiError as error:
            return EndTxnResponse(error_code=error.code)

    return end_txn
