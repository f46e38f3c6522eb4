"""Versions 0-4. KIP-35 version discovery, KIP-511 client software, KIP-584 features.

A request of an unknown version is answered with a version 0 body, so that the client can fall back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.table import ADVERTISED, CONTROLLER_VERSIONS
from penstock.core.metadata.features import SUPPORTED_FEATURES, levels_of
from penstock.model.errors import ErrorCode
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NEWEST = 4
# A connection keeps no more of what its peer's software calls itself.
SOFTWARE_LENGTH_MAX = 200
TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

# The levels that the cluster settled on, and the epoch as of which they are known.
Finalized = Callable[[], tuple[int, Mapping[str, int]]]


def finalized_in(raft: RaftDriver) -> Finalized:
    """What the metadata log says. As in Kafka, the epoch is the offset of the last record that was applied."""
    return lambda: (raft.applied_offset - 1, levels_of(raft.image, raft.metadata_log.history.kraft_version))


def make_api_versions(
    versions: Mapping[int, tuple[int, int]],
    features: Mapping[str, tuple[int, int]],
    finalized: Finalized,
    wants_telemetry: Callable[[], bool] = lambda: True,
) -> Handler:
    """The handler; `features` are the ranges that this node supports.

    Clients ask about telemetry, and some log that they do, wherever it is listed: so it is when somebody subscribes.
    """
    keys = [ApiVersion(key, low, high) for key, (low, high) in sorted(versions.items())]
    quiet_keys = [row for row in keys if row.api_key not in TELEMETRY]

    def api_versions(request: ApiVersionsRequest | None, context: RequestContext) -> ApiVersionsResponse:
        if request is None or context.api_version > NEWEST:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(18, 0, NEWEST)])
        context.client.software_name = request.client_software_name[:SOFTWARE_LENGTH_MAX]
        context.client.software_version = request.client_software_version[:SOFTWARE_LENGTH_MAX]
        supported = [SupportedFeatureKey(name, low, high) for name, (low, high) in features.items()]
        if context.api_version < 4:
            # Before version 4 a feature's lowest level could not be 0.
            supported = [feature for feature in supported if feature.min_version > 0]
        epoch, levels = finalized()
        return ApiVersionsResponse(
            api_keys=keys if wants_telemetry() else quiet_keys,
            supported_features=supported,
            # Clients go by the levels of the highest epoch that any broker told them.
            finalized_features_epoch=epoch,
            finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in levels.items()],
        )

    return api_versions


API = Api(
    ApiKey.API_VERSIONS,
    (0, 4),
    on_broker=lambda services: make_api_versions(
        ADVERTISED, SUPPORTED_FEATURES, finalized_in(services.raft), lambda: services.telemetry.is_wanted
    ),
    on_controller=lambda services: make_api_versions(
        CONTROLLER_VERSIONS, SUPPORTED_FEATURES, finalized_in(services.raft)
    ),
)
