"""Versions 1-2. KIP-48 delegation tokens. For a token's owner, its requester and its renewers."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.api.security.delegation_token_requests import check_may_use_tokens
from penstock.model.errors import ApiError
from penstock.runtime.controller.security import SecurityDecisions
from penstock.runtime.security.sign_in import DelegationTokens
from penstock.wire.apis import ApiKey
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

API = shared_api(
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    (1, 2),
    lambda services: make_expire_delegation_token(services.controller.security, services.tokens),
    is_forwarded=True,
)


def make_expire_delegation_token(decisions: SecurityDecisions, tokens: DelegationTokens) -> Handler:
    """The handler."""

    async def expire_delegation_token(
        request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> ExpireDelegationTokenResponse:
        try:
            check_may_use_tokens(tokens, context)
            expiry_ms = await decisions.expire_token(
                tokens.rules, bytes(request.hmac), context.client.principal, request.expiry_time_period_ms
            )
        except ApiError as error:
            return ExpireDelegationTokenResponse(error.code)
        return ExpireDelegationTokenResponse(0, expiry_ms)

    return expire_delegation_token
