"""Messages of the AlterLink API.

Generated from definitions/alter_link.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AlterableLinkConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class AlterLinkRequest(NamedTuple):
    """Version 0, flexible from 0."""

    name: str = ""
    action: int = 0
    topics: Sequence[str] | None = ()
    exclude: Sequence[str] | None = ()
    configs: Sequence[AlterableLinkConfig] = ()
    timeout_ms: int = 60000

    def response_class(self) -> type[AlterLinkResponse]:
        return AlterLinkResponse


class AlterLinkResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[str] = ()
