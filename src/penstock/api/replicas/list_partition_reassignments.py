"""Version 0. KIP-455: the reassignments under way."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@forwarded_api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions={
        0: "the first version (KIP-455)",
    },
    cluster_right=Operation.DESCRIBE,
)
async def list_partition_reassignments(
    services: SharedServices, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    try:
        topics = await services.controller.list_reassignments(request.topics)
    except ApiError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
