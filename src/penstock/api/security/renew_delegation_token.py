"""Versions 1-2. KIP-48 delegation tokens. For a token's owner, its requester and its renewers."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.security.delegation_token_requests import check_may_use_tokens
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@forwarded_api(
    ApiKey.RENEW_DELEGATION_TOKEN,
    versions={
        1: "the first version still served; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
    },
)
async def renew_delegation_token(
    services: SharedServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    try:
        check_may_use_tokens(services.tokens, context)
        expires_ms = await services.controller.security.renew_token(
            services.tokens.rules, bytes(request.hmac), context.client.principal, request.renew_period_ms
        )
    except ApiError as error:
        return RenewDelegationTokenResponse(error.code)
    return RenewDelegationTokenResponse(0, expires_ms)
