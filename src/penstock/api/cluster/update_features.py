"""Versions 0-2. KIP-584 features, KIP-778 upgrade types and dry runs.

`group.version` 0 turns the consumer protocol (KIP-848) off at once; clusters that never named it have it on.
`share.version` 0 turns share groups (KIP-932) off, `streams.version` 0 streams groups (KIP-1071); clusters that never
named them have them off. Not yet: changing `kraft.version`, which is what the controllers' storage was formatted with.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.core.metadata.features import FeatureUpdate, UpgradeType
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@forwarded_api(
    ApiKey.UPDATE_FEATURES,
    versions={
        0: "the first version: downgrades by a flag (KIP-584)",
        1: "upgrade types instead of the downgrade flag, and dry runs (KIP-778)",
        2: "no more results of single features; one error for the whole request",
    },
    cluster_right=Operation.ALTER,
)
async def update_features(
    services: SharedServices, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(row.feature, row.max_version_level, _kind(row, context.api_version))
        for row in request.feature_updates
    ]
    try:
        await services.controller.update_features(updates, validate_only=request.validate_only)
    except ApiError as error:
        results = [UpdatableFeatureResult(row.feature, error.code, error.message) for row in request.feature_updates]
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message, results=results)
    results = [UpdatableFeatureResult(row.feature, error_message=None) for row in request.feature_updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _kind(row: FeatureUpdateKey, api_version: int) -> int:
    if api_version > 0:
        return row.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if row.allow_downgrade else UpgradeType.UPGRADE
