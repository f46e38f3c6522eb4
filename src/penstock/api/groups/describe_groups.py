"""Versions 0-6. Classic groups with their members; KIP-430 authorized operations, KIP-1043 unknown groups."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import with_operations
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

UNKNOWN_GROUPS_SINCE = 6
DEAD = "Dead"


@broker_api(
    ApiKey.DESCRIBE_GROUPS,
    versions={
        0: "the first version: state, protocol and members of groups",
        1: "the response contains the throttle time (KIP-124)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "operations that the client may do on the group, on request (KIP-430)",
        4: "group instance ids of static members in the response (KIP-345)",
        5: "flexible versions (KIP-482)",
        6: "error messages; GROUP_ID_NOT_FOUND for unknown groups (KIP-1043)",
    },
)
async def describe_groups(
    services: BrokerServices, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    found = [await _describe(services, group, context) for group in request.groups]
    if request.include_authorized_operations:
        found = [with_operations(group, services.access, context) for group in found]
    return DescribeGroupsResponse(groups=found)


async def _describe(services: BrokerServices, group: str, context: RequestContext) -> DescribedGroup:
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
