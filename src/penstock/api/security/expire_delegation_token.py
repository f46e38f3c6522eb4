"""Versions 1-2. KIP-48 delegation tokens. For a token's owner, its requester and its renewers."""

from __future__ import annotations

from penstock.api.declaration import shared_api
from penstock.api.security.delegation_token_requests import make_expiry_change
from penstock.wire.apis import ApiKey
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse

API = shared_api(
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    (1, 2),
    lambda services: make_expiry_change(
        services.tokens, services.controller.security.expire_token, ExpireDelegationTokenResponse
    ),
    is_forwarded=True,
)
