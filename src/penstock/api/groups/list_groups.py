"""Versions 0-5. KIP-518 filter by state, KIP-848 types and filter by type.

A client without DESCRIBE on the cluster only sees the groups that it may DESCRIBE.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@broker_api(
    ApiKey.LIST_GROUPS,
    versions={
        0: "the first version: group ids and protocol types",
        1: "the response contains the throttle time (KIP-124)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "flexible versions (KIP-482)",
        4: "states of groups in the response, and a filter by state (KIP-518)",
        5: "types of groups in the response, and a filter by type (KIP-848)",
    },
)
async def list_groups(
    services: BrokerServices, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    try:
        found: list[ListedGroup] = await services.groups.read_all(lambda shard: shard.list_groups())
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    if not services.access.allows_on_cluster(context.client, Operation.DESCRIBE, quiet=True):
        names = (group.group_id for group in found)
        seen = {*services.access.allowed(context.client, Operation.DESCRIBE, ResourceType.GROUP, names)}
        found = [group for group in found if group.group_id in seen]
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            group
            for group in found
            if (not states or group.group_state.lower() in states) and (not types or group.group_type.lower() in types)
        ]
    )
