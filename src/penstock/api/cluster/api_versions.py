"""Versions 0-4. KIP-35 version discovery, KIP-511 client software, KIP-584 features.

A request of an unknown version is answered with a version 0 body, so that the client can fall back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, ControllerServices, SharedServices, broker_api, controller_api
from penstock.api.table import ADVERTISED, CONTROLLER_VERSIONS
from penstock.core.metadata.features import SUPPORTED_FEATURES, levels_of
from penstock.model.errors import ErrorCode
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


def _rows(versions: Mapping[int, tuple[int, int]]) -> list[ApiVersion]:
    return [ApiVersion(key, first, last) for key, (first, last) in sorted(versions.items())]


_OF_BROKERS = _rows(ADVERTISED)
_WITHOUT_TELEMETRY = [row for row in _OF_BROKERS if row.api_key not in TELEMETRY]
_OF_CONTROLLERS = _rows(CONTROLLER_VERSIONS)
VERSIONS = {
    0: "the first version: the versions of each API (KIP-35)",
    1: "the response contains the throttle time (KIP-124)",
    2: "the same fields; brokers throttle after the response (KIP-219)",
    3: "flexible versions (KIP-482), name and version of the client (KIP-511), features (KIP-584)",
    4: "the same fields; also features whose lowest supported level is 0",
}


@broker_api(ApiKey.API_VERSIONS, versions=VERSIONS)
def api_versions(
    services: BrokerServices, request: ApiVersionsRequest | None, context: RequestContext
) -> ApiVersionsResponse:
    # Clients send requests for telemetry where they are listed, and some log it: they are when something subscribes.
    return _respond(services, request, context, _OF_BROKERS if services.telemetry.is_wanted else _WITHOUT_TELEMETRY)


@controller_api(ApiKey.API_VERSIONS, versions=VERSIONS)
def api_versions_of_controller(
    services: ControllerServices, request: ApiVersionsRequest | None, context: RequestContext
) -> ApiVersionsResponse:
    return _respond(services, request, context, _OF_CONTROLLERS)


def _respond(
    services: SharedServices, request: ApiVersionsRequest | None, context: RequestContext, keys: Sequence[ApiVersion]
) -> ApiVersionsResponse:
    if request is None or context.api_version > NEWEST:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(18, 0, NEWEST)])
    context.client.software_name = request.client_software_name[:SOFTWARE_LENGTH_MAX]
    context.client.software_version = request.client_software_version[:SOFTWARE_LENGTH_MAX]
    supported = [SupportedFeatureKey(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
    if context.api_version < 4:
        # Before version 4 a feature's lowest level could not be 0.
        supported = [feature for feature in supported if feature.min_version > 0]
    raft = services.raft
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=supported,
        # As in Kafka, the offset of the last record that was applied. Clients go by the levels of the highest epoch.
        finalized_features_epoch=raft.applied_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name, level, level)
            for name, level in levels_of(raft.image, raft.metadata_log.history.kraft_version).items()
        ],
    )
