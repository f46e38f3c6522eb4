"""Messages of the DescribeConfigs API.

Generated from definitions/describe_configs.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: Sequence[str] | None = ()


class DescribeConfigsRequest(NamedTuple):
    """Versions 1-4, flexible from 4."""

    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: bool = False
    include_documentation: bool = False

    def response_class(self) -> type[DescribeConfigsResponse]:
        return DescribeConfigsResponse


class DescribeConfigsSynonym(NamedTuple):
    name: str = ""
    value: str | None = ""
    source: int = 0


class DescribeConfigsResourceResult(NamedTuple):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: int = 0
    documentation: str | None = ""


class DescribeConfigsResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[DescribeConfigsResourceResult] = ()


class DescribeConfigsResponse(NamedTuple):
    """Versions 1-4, flexible from 4."""

    throttle_time_ms: int = 0
    results: Sequence[DescribeConfigsResult] = ()
