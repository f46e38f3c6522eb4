"""Messages of the DescribeDelegationToken API.

Generated from definitions/describe_delegation_token.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeDelegationTokenOwner(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenRequest(NamedTuple):
    """Versions 1-3, flexible from 2."""

    owners: Sequence[DescribeDelegationTokenOwner] | None = ()

    def response_class(self) -> type[DescribeDelegationTokenResponse]:
        return DescribeDelegationTokenResponse


class DescribedDelegationTokenRenewer(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""


class DescribedDelegationToken(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp: int = 0
    expiry_timestamp: int = 0
    max_timestamp: int = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: Sequence[DescribedDelegationTokenRenewer] = ()


class DescribeDelegationTokenResponse(NamedTuple):
    """Versions 1-3, flexible from 2."""

    error_code: int = 0
    tokens: Sequence[DescribedDelegationToken] = ()
    throttle_time_ms: int = 0
