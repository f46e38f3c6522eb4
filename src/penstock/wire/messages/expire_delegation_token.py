"""Messages of the ExpireDelegationToken API.

Generated from definitions/expire_delegation_token.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class ExpireDelegationTokenRequest(NamedTuple):
    """Versions 1-2, flexible from 2."""

    hmac: bytes = b""
    expiry_time_period_ms: int = 0

    def response_class(self) -> type[ExpireDelegationTokenResponse]:
        return ExpireDelegationTokenResponse


class ExpireDelegationTokenResponse(NamedTuple):
    """Versions 1-2, flexible from 2."""

    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
