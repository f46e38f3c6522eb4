"""Version 0. Penstock's own: how far groups are behind, in records and in milliseconds, and how they are doing.

Not advertised: Kafka's clients have no use for it. Without names every group on this broker is described. Needs
DESCRIBE on the group; as with OffsetFetch, topics that the client may not describe are left out, and don't count.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.pieces import GROUPS_MAX, in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_lag import DescribeLagRequest, DescribeLagResponse, LagGroup


def make_describe_lag(services: BrokerServices) -> Handler:
    """The handler."""
    groups = services.groups
    access = services.access

    async def describe_lag(request: DescribeLagRequest, context: RequestContext) -> DescribeLagResponse:
        try:
            names = request.groups
            if names is None:
                everybody = (group.group_id for group in groups.read_all(lambda shard: shard.list_groups()))
                names = access.allowed(context.client, Operation.DESCRIBE, ResourceType.GROUP, everybody)
        except ApiError as error:
            return DescribeLagResponse(error_code=error.code)
        return DescribeLagResponse(groups=[await measure(name, context) async for name in in_turns(names, GROUPS_MAX)])

    async def measure(name: str, context: RequestContext) -> LagGroup:
        try:
            check(access, context, Operation.DESCRIBE, ResourceType.GROUP, name)
            return await groups.read(name, lambda shard: services.lag.measure(shard, name, may_describe(context)))
        except ApiError as error:
            return LagGroup(name, error.code)

    def may_describe(context: RequestContext) -> Callable[[str], bool]:
        return lambda topic: access.allows(context.client, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True)

    return describe_lag


API = Api(ApiKey.DESCRIBE_LAG, (0, 0), on_broker=make_describe_lag)
