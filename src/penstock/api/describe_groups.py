"""Versions 0-6. Classic groups with their members; KIP-430 authorized operations, KIP-1043 unknown groups."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.operations import ALL_ON_GROUP, NOT_ASKED
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

API = Api(ApiKey.DESCRIBE_GROUPS, (0, 6), on_broker=lambda services: make_describe_groups(services.groups))

UNKNOWN_GROUPS_SINCE = 6
DEAD = "Dead"


def make_describe_groups(groups: Groups) -> Handler:
    """The handler."""

    async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        found = [await describe(group, context.api_version) for group in request.groups]
        allowed = ALL_ON_GROUP if request.include_authorized_operations else NOT_ASKED
        return DescribeGroupsResponse(groups=[group._replace(authorized_operations=allowed) for group in found])

    async def describe(group: str, version: int) -> DescribedGroup:
        try:
            return await groups.read(group, lambda shard: shard.describe_group(group))
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                return DescribedGroup(error.code, None, group, "")
            if version < UNKNOWN_GROUPS_SINCE:
                # Older clients know a group that does not exist as a dead one.
                return DescribedGroup(0, None, group, DEAD)
            return DescribedGroup(error.code, error.message, group, DEAD)

    return describe_groups
