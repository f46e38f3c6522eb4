"""Versions 0-1. KIP-455 reassignments, KIP-860 an unchanged replication factor on demand."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def make_alter_partition_reassignments(services: SharedServices) -> Handler:
    """The handler."""

    async def alter_partition_reassignments(
        request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        allowed = request.allow_replication_factor_change
        response = AlterPartitionReassignmentsResponse(allow_replication_factor_change=allowed, error_message=None)
        try:
            check_cluster(services.access, context, Operation.ALTER)
        except ApiError as error:
            refused = [
                ReassignableTopicResponse(
                    topic.name,
                    [ReassignablePartitionResponse(row.partition_index, error.code) for row in topic.partitions],
                )
                for topic in request.topics
            ]
            return response._replace(error_code=error.code, error_message=error.message, responses=refused)
        try:
            outcomes = await services.controller.alter_reassignments(
                request.topics, allow_replication_factor_change=allowed
            )
        except ApiError as error:
            return response._replace(error_code=error.code, error_message=error.message)
        return response._replace(responses=outcomes)

    return alter_partition_reassignments


API = shared_api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), make_alter_partition_reassignments, is_forwarded=True)
