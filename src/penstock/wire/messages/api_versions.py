"""Messages of the ApiVersions API.

Generated from definitions/api_versions.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ApiVersionsRequest(NamedTuple):
    """Versions 0-4, flexible from 3."""

    client_software_name: str = ""
    client_software_version: str = ""

    def response_class(self) -> type[ApiVersionsResponse]:
        return ApiVersionsResponse


class ApiVersion(NamedTuple):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class SupportedFeatureKey(NamedTuple):
    name: str = ""
    min_version: int = 0
    max_version: int = 0


class FinalizedFeatureKey(NamedTuple):
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


class ApiVersionsResponse(NamedTuple):
    """Versions 0-4, flexible from 3."""

    error_code: int = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: int = 0
    supported_features: Sequence[SupportedFeatureKey] = ()
    finalized_features_epoch: int = -1
    finalized_features: Sequence[FinalizedFeatureKey] = ()
    zk_migration_ready: bool = False
