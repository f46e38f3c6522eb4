"""Versions 1-2. KIP-48 delegation tokens. For a token's owner, its requester and its renewers."""

from __future__ import annotations

from penstock.api.declaration import shared_api
from penstock.api.security.delegation_token_requests import make_expiry_change
from penstock.wire.apis import ApiKey
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenResponse

API = shared_api(
    ApiKey.RENEW_DELEGATION_TOKEN,
    (1, 2),
    lambda services: make_expiry_change(
        services.tokens, services.controller.security.renew_token, RenewDelegationTokenResponse
    ),
    is_forwarded=True,
)
