"""Messages of the UpdateFeatures API.

Generated from definitions/update_features.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FeatureUpdateKey(NamedTuple):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(NamedTuple):
    """Versions 0-2, flexible from 0."""

    timeout_ms: int = 60000
    feature_updates: Sequence[FeatureUpdateKey] = ()
    validate_only: bool = False

    def response_class(self) -> type[UpdateFeaturesResponse]:
        return UpdateFeaturesResponse


class UpdatableFeatureResult(NamedTuple):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""


class UpdateFeaturesResponse(NamedTuple):
    """Versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: Sequence[UpdatableFeatureResult] = ()
