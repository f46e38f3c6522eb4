"""Versions 0-1. KIP-546 quotas of users, client ids and addresses. Asks for ALTER_CONFIGS on the cluster."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.pieces import decide_in_pieces
from penstock.core.metadata.security import quota_entity
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)


@forwarded_api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions={
        0: "the first version (KIP-546)",
        1: "flexible versions (KIP-482)",
    },
)
async def alter_client_quotas(
    services: SharedServices, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    try:
        check_cluster(services.access, context, Operation.ALTER_CONFIGS)
        answers = await decide_in_pieces(
            request.entries,
            lambda entry: quota_entity(entry.entity),
            lambda some: services.controller.security.alter_quotas(some, validate_only=request.validate_only),
        )
    except ApiError as error:
        answers = [error] * len(request.entries)
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntryData(
                error.code if error is not None else 0, error.message if error is not None else None, entry.entity
            )
            for entry, error in zip(request.entries, answers, strict=True)
        ]
    )
