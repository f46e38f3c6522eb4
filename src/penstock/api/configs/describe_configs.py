"""Versions 1-4. KIP-226 synonyms, KIP-569 types and documentation."""

from __future__ import annotations

from penstock.api.configs.config_resources import check_right, scope_of
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.config.alter import ConfigScope
from penstock.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from penstock.core.metadata.image import ResourceType
from penstock.core.metadata.topic_names import check_topic_name
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@shared_api(
    ApiKey.DESCRIBE_CONFIGS,
    versions={
        1: "the first version still served: sources of values, and synonyms on request (KIP-226)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "types of settings, and their documentation on request (KIP-569)",
        4: "flexible versions (KIP-482)",
    },
)
def describe_configs(
    services: SharedServices, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(services, resource, request, context) for resource in request.resources]
    )


def _describe(
    services: SharedServices,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        check_right(services.access, context, Operation.DESCRIBE_CONFIGS, kind, name)
        entries = _find(services, kind, name)
    except ApiError as error:
        return DescribeConfigsResult(error.code, error.message, kind, name)
    wanted = resource.configuration_keys
    rows = [_row(entry, request) for entry in entries if wanted is None or entry.name in wanted]
    return DescribeConfigsResult(0, None, kind, name, rows)


def _find(services: SharedServices, resource_type: int, name: str) -> list[ConfigEntry]:
    kind, scope = scope_of(resource_type, name, services.settings.node.node_id)
    overrides = services.image.overrides(kind, name)
    match scope:
        case ConfigScope.TOPIC:
            check_topic_name(name)
            if name not in services.image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            return describe_topic(overrides, services.settings.broker_properties())
        case ConfigScope.BROKER:
            return describe_broker(services.settings.broker_properties())
        case ConfigScope.CLUSTER:
            return describe_cluster_defaults(overrides)
        case ConfigScope.GROUP:
            return describe_group(overrides, services.settings.broker_properties())
    return describe_client_metrics(services.image.overrides(ResourceType.CLIENT_METRICS, name))


def _row(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    if request.include_synonyms:
        synonyms = tuple(DescribeConfigsSynonym(link.name, link.value, link.source) for link in entry.synonyms)
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
