"""Version 0. KIP-554 users and passwords for SCRAM. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def make_alter_user_scram_credentials(services: SharedServices) -> Handler:
    """The handler."""
    decisions = services.controller.security

    async def alter_user_scram_credentials(
        request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        try:
            check_cluster(services.access, context, Operation.ALTER)
            results = await decisions.alter_credentials(request)
        except ApiError as error:
            names = [*(change.name for change in request.deletions), *(change.name for change in request.upsertions)]
            results = [
                AlterUserScramCredentialsResult(name, error.code, error.message) for name in dict.fromkeys(names)
            ]
        return AlterUserScramCredentialsResponse(results=results)

    return alter_user_scram_credentials


API = shared_api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), make_alter_user_scram_credentials, is_forwarded=True)
