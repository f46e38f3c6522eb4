"""Messages of the ChangeLink API.

Generated from definitions/change_link.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ChangeableLinkConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class ChangeLinkRequest(NamedTuple):
    """Version 0, flexible from 0."""

    name: str = ""
    action: int = 0
    topics: Sequence[str] | None = ()
    exclude: Sequence[str] | None = ()
    configs: Sequence[ChangeableLinkConfig] = ()
    source_cluster_id: str = ""
    origins: Sequence[str] = ()
    source_topics: Sequence[str] = ()

    def response_class(self) -> type[ChangeLinkResponse]:
        return ChangeLinkResponse


class ChangeLinkResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[str] = ()
