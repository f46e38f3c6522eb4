"""Versions 0-4. KIP-35 version discovery, KIP-511 client software, KIP-584 features.

A request of an unknown version is answered with a version 0 body, so that the client can fall back.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api.context import Handler, RequestContext
from penstock.core.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NEWEST = 4


def make_api_versions(
    versions: Mapping[int, tuple[int, int]], features: Mapping[str, tuple[int, int]], image: Image
) -> Handler:
    """The handler; `features` are the ranges this broker supports, the image has what the cluster settled on."""
    keys = [ApiVersion(key, low, high) for key, (low, high) in sorted(versions.items())]

    def api_versions(request: ApiVersionsRequest | None, context: RequestContext) -> ApiVersionsResponse:
        if request is None or context.api_version > NEWEST:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(18, 0, NEWEST)])
        context.client.software_name = request.client_software_name
        context.client.software_version = request.client_software_version
        supported = [SupportedFeatureKey(name, low, high) for name, (low, high) in features.items()]
        if context.api_version < 4:
            # Before version 4 a feature's lowest level could not be 0.
            supported = [feature for feature in supported if feature.min_version > 0]
        return ApiVersionsResponse(
            api_keys=keys,
            supported_features=supported,
            finalized_features_epoch=0,
            finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in image.features.items()],
        )

    return api_versions
