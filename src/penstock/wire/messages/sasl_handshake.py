"""Messages of the SaslHandshake API.

Generated from definitions/sasl_handshake.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SaslHandshakeRequest(NamedTuple):
    """Versions 0-1."""

    mechanism: str = ""

    def response_class(self) -> type[SaslHandshakeResponse]:
        return SaslHandshakeResponse


class SaslHandshakeResponse(NamedTuple):
    """Versions 0-1."""

    error_code: int = 0
    mechanisms: Sequence[str] = ()
