"""Version 0. KIP-455: the reassignments under way."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.model.errors import ApiError
from penstock.runtime.controller.controller import Controller
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
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
