"""Versions 0-1. KIP-1142: the resources that have settings; version 0 requests client metrics only."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.core.metadata.image import ResourceType
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


@shared_api(
    ApiKey.LIST_CONFIG_RESOURCES,
    versions={
        0: "the first version: client metrics resources only (KIP-1000)",
        1: "resource types, as a filter in the request and in the response (KIP-1142)",
    },
    cluster_right=Operation.DESCRIBE_CONFIGS,
)
def list_config_resources(
    services: SharedServices, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or {int(kind) for kind in LISTED}
    if not wanted.issubset(LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = {(kind, name) for kind, name in services.image.configs if kind in wanted and name}
    if ResourceType.TOPIC in wanted:
        found.update((int(ResourceType.TOPIC), name) for name in services.image.topics)
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if kind in wanted:
            found.update((int(kind), str(broker)) for broker in services.image.brokers)
    return ListConfigResourcesResponse(config_resources=[ConfigResource(name, kind) for kind, name in sorted(found)])
