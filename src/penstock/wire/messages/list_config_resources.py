"""Messages of the ListConfigResources API.

Generated from definitions/list_config_resources.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ListConfigResourcesRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    resource_types: Sequence[int] = ()

    def response_class(self) -> type[ListConfigResourcesResponse]:
        return ListConfigResourcesResponse


class ConfigResource(NamedTuple):
    resource_name: str = ""
    resource_type: int = 16


class ListConfigResourcesResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: Sequence[ConfigResource] = ()
