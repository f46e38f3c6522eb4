"""Versions 0-6. KIP-98 coordinators of transactions, KIP-699 of many groups at once, KIP-932 of share-partitions.

The internal topic of a coordinator is created on first use.
"""

from __future__ import annotations

from penstock.api.access import check, check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
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


@broker_api(
    ApiKey.FIND_COORDINATOR,
    versions={
        0: "the first version: coordinators of groups only",
        1: "key types, so also transactions (KIP-98); error messages and the throttle time",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "flexible versions (KIP-482)",
        4: "many keys in one request (KIP-699)",
        5: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
        6: "the same fields; a key type for share-partitions (KIP-932)",
    },
)
async def find_coordinator(
    services: BrokerServices, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    if context.api_version >= MANY_SINCE:
        found = [await _find(services, key, request.key_type, context) for key in request.coordinator_keys]
        return FindCoordinatorResponse(error_message=None, coordinators=found)
    one = await _find(services, request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(services: BrokerServices, key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        state = await _leader_of(services, key, key_type, context)
        broker = services.image.brokers.get(state.leader)
        endpoint = broker.endpoint(context.client.listener_name) if broker and not broker.fenced else None
        if endpoint is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its partition has no leader at the moment")
    except ApiError as error:
        return Coordinator(key, -1, "", -1, error.code, error.message)
    return Coordinator(key, state.leader, *endpoint, 0, None)


async def _leader_of(services: BrokerServices, key: str, key_type: int, context: RequestContext) -> PartitionState:
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
