"""Versions 1-3. KIP-48 delegation tokens, KIP-373 for others: needs CREATE_TOKENS on that user."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.security.delegation_token_requests import check_may_use_tokens, requester_parts, split
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


@forwarded_api(
    ApiKey.CREATE_DELEGATION_TOKEN,
    versions={
        1: "the first version still served; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
        3: "tokens for another owner; the response contains who requested the token (KIP-373)",
    },
)
async def create_delegation_token(
    services: SharedServices, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester = context.client.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    named = (*split(owner), *requester_parts(requester, context))
    try:
        check_may_use_tokens(services.tokens, context)
        if any(renewer.principal_type != "User" for renewer in request.renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "renewers are users")
        if owner != requester and not services.access.allows(
            context.client, Operation.CREATE_TOKENS, ResourceType.USER, owner
        ):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, f"no right to make tokens of {owner}")
        renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
        made = await services.controller.security.create_token(
            services.tokens.rules, owner, requester, renewers, request.max_lifetime_ms
        )
    except ApiError as error:
        return CreateDelegationTokenResponse(error.code, *named)
    return CreateDelegationTokenResponse(
        0,
        *named,
        made.issue_timestamp,
        made.expiration_timestamp,
        made.max_timestamp,
        made.token_id,
        services.tokens.secret(made.token_id),
    )
