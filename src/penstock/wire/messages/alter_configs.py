"""Messages of the AlterConfigs API.

Generated from definitions/alter_configs.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AlterableConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class AlterConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[AlterableConfig] = ()


class AlterConfigsRequest(NamedTuple):
    """Versions 0-2, flexible from 2."""

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: bool = False

    def response_class(self) -> type[AlterConfigsResponse]:
        return AlterConfigsResponse


class AlterConfigsResourceResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


class AlterConfigsResponse(NamedTuple):
    """Versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()
