"""Versions 0-1. KIP-455 reassignments, KIP-860 an unchanged replication factor on demand."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.pieces import decide_in_pieces
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.controller.controller import RECORDS_PER_REQUEST_MAX
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


@forwarded_api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions={
        0: "the first version (KIP-455)",
        1: "the request can forbid that the replication factor changes (KIP-860)",
    },
)
async def alter_partition_reassignments(
    services: SharedServices, request: AlterPartitionReassignmentsRequest, context: RequestContext
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
        outcomes = await _decide(services, request)
    except ApiError as error:
        return response._replace(error_code=error.code, error_message=error.message)
    return response._replace(responses=outcomes)


async def _decide(
    services: SharedServices, request: AlterPartitionReassignmentsRequest
) -> list[ReassignableTopicResponse]:
    rows = [(topic.name, row) for topic in request.topics for row in topic.partitions]
    left = RECORDS_PER_REQUEST_MAX

    async def decide_some(some: list[tuple[str, ReassignablePartition]]) -> list[ReassignablePartitionResponse]:
        nonlocal left
        outcomes = await services.controller.alter_reassignments(
            [ReassignableTopic(name, [row]) for name, row in some],
            records_max=left,
            allow_replication_factor_change=request.allow_replication_factor_change,
        )
        answers = [outcome.partitions[0] for outcome in outcomes]
        left -= sum(not answer.error_code for answer in answers)
        return answers

    answers = iter(await decide_in_pieces(rows, lambda row: (row[0], row[1].partition_index), decide_some))
    return [
        ReassignableTopicResponse(topic.name, [next(answers) for _ in topic.partitions]) for topic in request.topics
    ]
