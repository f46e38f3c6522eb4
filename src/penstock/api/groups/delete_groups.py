"""Versions 0-2. KIP-229: delete groups that have no members, with their offsets or the state of share groups."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import answer_or
from penstock.api.pieces import GROUPS_MAX, in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def make_delete_groups(services: BrokerServices) -> Handler:
    """The handler."""

    async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                await delete(group, context)
                async for group in in_turns(dict.fromkeys(request.groups_names), GROUPS_MAX)
            ]
        )

    async def delete(group: str, context: RequestContext) -> DeletableGroupResult:
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

    return delete_groups


API = Api(ApiKey.DELETE_GROUPS, (0, 2), on_broker=make_delete_groups)
