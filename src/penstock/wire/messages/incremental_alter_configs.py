"""Messages of the IncrementalAlterConfigs API.

Generated from definitions/incremental_alter_configs.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AlterableConfig(NamedTuple):
    name: str = ""
    config_operation: int = 0
    value: str | None = ""


class AlterConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[AlterableConfig] = ()


class IncrementalAlterConfigsRequest(NamedTuple):
    """Versions 0-1, flexible from 1."""

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: bool = False

    def response_class(self) -> type[IncrementalAlterConfigsResponse]:
        return IncrementalAlterConfigsResponse


class AlterConfigsResourceResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(NamedTuple):
    """Versions 0-1, flexible from 1."""

    throttle_time_ms: int = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()
