"""Versions 0-2. KIP-229: delete groups that have no members, with their offsets or the state of share groups."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import answer_or
from penstock.api.pieces import GROUPS_MAX, in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@broker_api(
    ApiKey.DELETE_GROUPS,
    versions={
        0: "the first version (KIP-229)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
    },
)
async def delete_groups(
    services: BrokerServices, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            await _delete(services, group, context)
            async for group in in_turns(dict.fromkeys(request.groups_names), GROUPS_MAX)
        ]
    )


async def _delete(services: BrokerServices, group: str, context: RequestContext) -> DeletableGroupResult:
    if not services.access.allows(context.client, Operation.DELETE, ResourceType.GROUP, group):
        return DeletableGroupResult(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        await services.share_groups.delete_state(group)
    except ApiError as error:
        return DeletableGroupResult(group, error.code)
    code: ErrorCode = await answer_or(
        services.groups,
        group,
        lambda shard, token, now_ms: shard.delete_group(group, token, now_ms),
        lambda code: code,
    )
    return DeletableGroupResult(group, code)
