"""Messages of the SaslAuthenticate API.

Generated from definitions/sasl_authenticate.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class SaslAuthenticateRequest(NamedTuple):
    """Versions 0-2, flexible from 2."""

    auth_bytes: bytes = b""

    def response_class(self) -> type[SaslAuthenticateResponse]:
        return SaslAuthenticateResponse


class SaslAuthenticateResponse(NamedTuple):
    """Versions 0-2, flexible from 2."""

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0
