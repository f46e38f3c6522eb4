"""Versions 0-2. KIP-229: delete groups that have no members, with their offsets."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.group_calls import answer_or
from penstock.model.errors import ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

API = Api(ApiKey.DELETE_GROUPS, (0, 2), on_broker=lambda services: make_delete_groups(services.groups))


def make_delete_groups(groups: Groups) -> Handler:
    """The handler."""

    async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[await delete(group) for group in dict.fromkeys(request.groups_names)])

    async def delete(group: str) -> DeletableGroupResult:
        code: ErrorCode = await answer_or(
            groups,
            group,
            lambda shard, token, now_ms: shard.delete_group(group, token, now_ms),
            lambda code: code,
        )
        return DeletableGroupResult(group, code)

    return delete_groups
