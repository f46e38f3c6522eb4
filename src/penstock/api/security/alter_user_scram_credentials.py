"""Version 0. KIP-554 users and passwords for SCRAM. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@forwarded_api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions={
        0: "the first version (KIP-554)",
    },
)
async def alter_user_scram_credentials(
    services: SharedServices, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    try:
        check_cluster(services.access, context, Operation.ALTER)
        results = await services.controller.security.alter_credentials(request)
    except ApiError as error:
        names = [*(change.name for change in request.deletions), *(change.name for change in request.upsertions)]
        results = [AlterUserScramCredentialsResult(name, error.code, error.message) for name in dict.fromkeys(names)]
    return AlterUserScramCredentialsResponse(results=results)
