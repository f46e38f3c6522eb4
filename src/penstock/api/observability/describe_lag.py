"""Version 0. Penstock's own: how far groups are behind, in records and in milliseconds, and how they are doing.

Not advertised: Kafka's clients have no use for it. Without names every group on this broker is described. Needs
DESCRIBE on the group; as with OffsetFetch, topics that the client may not describe are left out, and don't count.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import GROUPS_MAX, in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_lag import DescribeLagRequest, DescribeLagResponse, LagGroup


@broker_api(
    ApiKey.DESCRIBE_LAG,
    versions={
        0: "Penstock's own: how far groups are behind, in records and in milliseconds",
    },
)
async def describe_lag(
    services: BrokerServices, request: DescribeLagRequest, context: RequestContext
) -> DescribeLagResponse:
    try:
        names = request.groups
        if names is None:
            listed = await services.groups.read_all(lambda shard: shard.list_groups())
            everybody = (group.group_id for group in listed)
            names = services.access.allowed(context.client, Operation.DESCRIBE, ResourceType.GROUP, everybody)
    except ApiError as error:
        return DescribeLagResponse(error_code=error.code)
    return DescribeLagResponse(
        groups=[await _measure(services, name, context) async for name in in_turns(dict.fromkeys(names), GROUPS_MAX)]
    )


async def _measure(services: BrokerServices, name: str, context: RequestContext) -> LagGroup:
    try:
        check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, name)
        return await services.groups.read(
            name, lambda shard: services.lag.measure(shard, name, _may_describe(services, context))
        )
    except ApiError as error:
        return LagGroup(name, error.code)


def _may_describe(services: BrokerServices, context: RequestContext) -> Callable[[str], bool]:
    return lambda topic: services.access.allows(
        context.client, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True
    )
