"""Versions 0-5. KIP-518 filter by state, KIP-848 types and filter by type.

A client without DESCRIBE on the cluster only sees the groups that it may DESCRIBE.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def make_list_groups(services: BrokerServices) -> Handler:
    """The handler."""

    def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        try:
            found: list[ListedGroup] = services.groups.read_all(lambda shard: shard.list_groups())
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
                if (not states or group.group_state.lower() in states)
                and (not types or group.group_type.lower() in types)
            ]
        )

    return list_groups


API = Api(ApiKey.LIST_GROUPS, (0, 5), on_broker=make_list_groups)
