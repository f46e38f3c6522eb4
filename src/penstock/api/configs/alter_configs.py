"""Versions 0-2. Replaces all settings of a resource; IncrementalAlterConfigs is the gentler one."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api.configs.config_resources import (
    alter_each,
    check_broker_settings,
    check_dead_letter_topic,
    check_right,
    group_share,
    scope_of,
)
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.config.alter import validate_overrides
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@forwarded_api(
    ApiKey.ALTER_CONFIGS,
    versions={
        0: "the first version (KIP-133)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
    },
)
async def alter_configs(
    services: SharedServices, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    outcomes = await alter_each(
        request.resources, lambda resource: _alter(services, resource, request.validate_only, context)
    )
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*outcome) for outcome in outcomes])


async def _alter(
    services: SharedServices, resource: AlterConfigsResource, validate_only: bool, context: RequestContext
) -> None:
    check_right(services.access, context, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
    kind, scope = scope_of(resource.resource_type, resource.resource_name)
    wanted: dict[str, str] = {}
    for row in resource.configs:
        if row.value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{row.name} has no value: give one, or leave it out")
        if row.name in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{row.name} is named twice")
        wanted[row.name] = row.value

    def change(current: Mapping[str, str]) -> Mapping[str, str]:
        validate_overrides(wanted, scope, defaults=services.settings.topic_defaults(), before=current)
        check_broker_settings(services.settings, scope, current, wanted)
        check_dead_letter_topic(services.access, context, services.image, scope, current, wanted)
        return wanted

    share = group_share(services, context, kind, resource.resource_name)
    await services.controller.change_configs(
        kind, resource.resource_name, change, validate_only=validate_only, share=share
    )
