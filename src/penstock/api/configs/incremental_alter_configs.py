"""Versions 0-1. KIP-339: set, delete, append to or subtract from single settings."""

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
from penstock.config.alter import Alteration, AlterOperation, apply_incremental
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@forwarded_api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions={
        0: "the first version (KIP-339)",
        1: "flexible versions (KIP-482)",
    },
)
async def incremental_alter_configs(
    services: SharedServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    outcomes = await alter_each(
        request.resources, lambda resource: _alter(services, resource, request.validate_only, context)
    )
    return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*outcome) for outcome in outcomes])


async def _alter(
    services: SharedServices, resource: AlterConfigsResource, validate_only: bool, context: RequestContext
) -> None:
    check_right(services.access, context, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
    kind, scope = scope_of(resource.resource_type, resource.resource_name)
    operations = [Alteration(row.name, _operation(row.config_operation), row.value) for row in resource.configs]

    def change(current: Mapping[str, str]) -> Mapping[str, str]:
        after = apply_incremental(current, operations, scope, services.settings.topic_defaults())
        check_broker_settings(services.settings, scope, current, after)
        check_dead_letter_topic(services.access, context, services.image, scope, current, after)
        return after

    share = group_share(services, context, kind, resource.resource_name)
    await services.controller.change_configs(
        kind, resource.resource_name, change, validate_only=validate_only, share=share
    )


def _operation(code: int) -> AlterOperation:
    try:
        return AlterOperation(code)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{code} is no operation: 0 to 3 are set, delete, append, subtract"
        ) from None
