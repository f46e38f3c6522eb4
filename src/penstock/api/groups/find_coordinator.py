"""Versions 0-6. KIP-98 coordinators of transactions, KIP-699 of many groups at once, KIP-932 of share-partitions.

The internal topic of a coordinator is created on first use.
"""

from __future__ import annotations

from penstock.api.access import check, check_cluster
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.core.metadata.image import PartitionState
from penstock.core.share.state import ShareKey
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
MANY_SINCE = 4


def make_find_coordinator(services: BrokerServices) -> Handler:
    """The handler."""

    async def find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        if context.api_version >= MANY_SINCE:
            found = [await find(key, request.key_type, context) for key in request.coordinator_keys]
            return FindCoordinatorResponse(error_message=None, coordinators=found)
        one = await find(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    async def find(key: str, key_type: int, context: RequestContext) -> Coordinator:
        try:
            state = await leader_of(key, key_type, context)
            broker = services.image.brokers.get(state.leader)
            endpoint = broker.endpoint(context.client.listener_name) if broker and not broker.fenced else None
            if endpoint is None:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its partition has no leader at the moment")
        except ApiError as error:
            return Coordinator(key, -1, "", -1, error.code, error.message)
        return Coordinator(key, state.leader, *endpoint, 0, None)

    async def leader_of(key: str, key_type: int, context: RequestContext) -> PartitionState:
        if key_type == GROUP:
            check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, key)
            return await services.groups.leader_of(key)
        if key_type == TRANSACTION:
            check(services.access, context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            return await services.transactions.leader_of(key)
        if key_type != SHARE:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
        check_cluster(services.access, context, Operation.CLUSTER_ACTION)
        try:
            ShareKey.parse(key)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        return await services.share_states.leader_of(key)

    return find_coordinator


API = Api(ApiKey.FIND_COORDINATOR, (0, 6), on_broker=make_find_coordinator)
