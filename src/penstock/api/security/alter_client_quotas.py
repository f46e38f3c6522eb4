"""Versions 0-1. KIP-546 quotas of users, client ids and addresses. Asks for ALTER_CONFIGS on the cluster."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.controller.security import SecurityDecisions
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)

API = shared_api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    (0, 1),
    lambda services: make_alter_client_quotas(services.controller.security, services.access),
    is_forwarded=True,
)


def make_alter_client_quotas(decisions: SecurityDecisions, access: AccessControl) -> Handler:
    """The handler."""

    async def alter_client_quotas(
        request: AlterClientQuotasRequest, context: RequestContext
    ) -> AlterClientQuotasResponse:
        try:
            check_cluster(access, context, Operation.ALTER_CONFIGS)
            answers = await decisions.alter_quotas(request.entries, validate_only=request.validate_only)
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

    return alter_client_quotas
