"""Version 0. KIP-455: the reassignments under way."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def make_list_partition_reassignments(services: SharedServices) -> Handler:
    """The handler."""

    async def list_partition_reassignments(
        request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        try:
            topics = await services.controller.list_reassignments(request.topics)
        except ApiError as error:
            return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
        return ListPartitionReassignmentsResponse(error_message=None, topics=topics)

    return list_partition_reassignments


API = shared_api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    (0, 0),
    guarded(Operation.DESCRIBE, make_list_partition_reassignments, ListPartitionReassignmentsResponse),
    is_forwarded=True,
)
