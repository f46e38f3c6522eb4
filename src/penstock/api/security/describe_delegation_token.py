"""Versions 1-3. KIP-48 delegation tokens, KIP-373 those of others.

Clients see the tokens that they own, requested, or may renew; others with DESCRIBE on the token, or DESCRIBE_TOKENS on
its owner.
"""

from __future__ import annotations

from penstock.api.context import Client, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.api.pieces import in_turns
from penstock.api.security.delegation_token_requests import check_may_use_tokens, requester_parts, split
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.runtime.security.sign_in import DelegationTokens
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.wire.messages.metadata_records import DelegationTokenRecord


@shared_api(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    versions={
        1: "the first version still served; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
        3: "the response contains who requested each token (KIP-373)",
    },
)
async def describe_delegation_token(
    services: SharedServices, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    try:
        check_may_use_tokens(services.tokens, context)
    except ApiError as error:
        return DescribeDelegationTokenResponse(error.code)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    found = [
        _row(token, services.tokens, context)
        async for token in in_turns([*services.image.security.tokens.values()])
        if (owners is None or token.owner in owners) and _may_see(services, token, context.client)
    ]
    return DescribeDelegationTokenResponse(0, found)


def _may_see(services: SharedServices, token: DelegationTokenRecord, client: Client) -> bool:
    if client.principal in (token.owner, token.requester, *token.renewers):
        return True
    return services.access.allows(
        client, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, quiet=True
    ) or services.access.allows(client, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, quiet=True)


def _row(token: DelegationTokenRecord, tokens: DelegationTokens, context: RequestContext) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *split(token.owner),
        *requester_parts(token.requester, context),
        token.issue_timestamp,
        token.expiration_timestamp,
        token.max_timestamp,
        token.token_id,
        tokens.secret(token.token_id),
        [DescribedDelegationTokenRenewer(*split(renewer)) for renewer in token.renewers],
    )
