"""Versions 0-1. KIP-455 reassignments, KIP-860 an unchanged replication factor on demand."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.controller.controller import Controller
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

API = shared_api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    (0, 1),
    lambda services: guarded(
        services.access,
        Operation.ALTER,
        make_alter_partition_reassignments(services.controller),
        AlterPartitionReassignmentsResponse,
    ),
    is_forwarded=True,
)


def make_alter_partition_reassignments(controller: Controller) -> Handler:
    """The handler."""

    async def alter_partition_reassignments(
        request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        allowed = request.allow_replication_factor_change
        response = AlterPartitionReassignmentsResponse(allow_replication_factor_change=allowed, error_message=None)
        try:
            outcomes = await controller.alter_reassignments(request.topics, allow_replication_factor_change=allowed)
        except ApiError as error:
            return response._replace(error_code=error.code, error_message=error.message)
        return response._replace(responses=outcomes)

    return alter_partition_reassignments
