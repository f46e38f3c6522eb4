"""Messages of the header family.

Generated from definitions/headers.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class RequestHeader(NamedTuple):
    """Versions 1-2, flexible from 2."""

    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""


class ResponseHeader(NamedTuple):
    """Versions 0-1, flexible from 1."""

    correlation_id: int = 0
