"""Versions 0-6. Classic groups with their members; KIP-430 authorized operations, KIP-1043 unknown groups."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import with_operations
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

UNKNOWN_GROUPS_SINCE = 6
DEAD = "Dead"


def make_describe_groups(services: BrokerServices) -> Handler:
    """The handler."""

    async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        found = [await describe(group, context) for group in request.groups]
        if request.include_authorized_operations:
            found = [with_operations(group, services.access, context) for group in found]
        return DescribeGroupsResponse(groups=found)

    async def describe(group: str, context: RequestContext) -> DescribedGroup:
        try:
            check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
            return await services.groups.read(group, lambda shard: shard.describe_group(group))
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                return DescribedGroup(error.code, None, group, "")
            if context.api_version < UNKNOWN_GROUPS_SINCE:
                # Older clients expect an unknown group to be shown as dead.
                return DescribedGroup(0, None, group, DEAD)
            return DescribedGroup(error.code, error.message, group, DEAD)

    return describe_groups


API = Api(ApiKey.DESCRIBE_GROUPS, (0, 6), on_broker=make_describe_groups)
