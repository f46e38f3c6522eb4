"""Messages of the Envelope API.

Generated from definitions/envelope.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class EnvelopeRequest(NamedTuple):
    """Version 0, flexible from 0."""

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""

    def response_class(self) -> type[EnvelopeResponse]:
        return EnvelopeResponse


class EnvelopeResponse(NamedTuple):
    """Version 0, flexible from 0."""

    response_data: bytes | None = None
    error_code: int = 0
