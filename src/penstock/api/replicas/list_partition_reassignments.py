"""Version 0. KIP-455: the reassignments under way."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.controller.controller import Controller
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API = shared_api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    (0, 0),
    lambda services: guarded(
        services.access,
        Operation.DESCRIBE,
        make_list_partition_reassignments(services.controller),
        ListPartitionReassignmentsResponse,
    ),
    is_forwarded=True,
)


def make_list_partition_reassignments(controller: Controller) -> Handler:
    """The handler."""

    async def list_partition_reassignments(
        request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        try:
            topics = await controller.list_reassignments(request.topics)
        except ApiError as error:
            return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
        return ListPartitionReassignmentsResponse(error_message=None, topics=topics)

    return list_partition_reassignments
