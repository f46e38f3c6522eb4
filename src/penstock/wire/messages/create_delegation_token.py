"""Messages of the CreateDelegationToken API.

Generated from definitions/create_delegation_token.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CreatableRenewers(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(NamedTuple):
    """Versions 1-3, flexible from 2."""

    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: Sequence[CreatableRenewers] = ()
    max_lifetime_ms: int = 0

    def response_class(self) -> type[CreateDelegationTokenResponse]:
        return CreateDelegationTokenResponse


class CreateDelegationTokenResponse(NamedTuple):
    """Versions 1-3, flexible from 2."""

    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0
