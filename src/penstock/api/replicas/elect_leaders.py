"""Versions 0-2. KIP-183 preferred leaders, KIP-460 unclean elections."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.core.metadata.elections import ElectionType
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@forwarded_api(
    ApiKey.ELECT_LEADERS,
    versions={
        0: "the first version: preferred leaders only (KIP-183)",
        1: "election types, so unclean ones too; an error code for the whole response (KIP-460)",
        2: "flexible versions (KIP-482)",
    },
)
async def elect_leaders(
    services: SharedServices, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    try:
        check_cluster(services.access, context, Operation.ALTER)
    except ApiError as error:
        return refusal(request, error)
    try:
        # Version 0 only knows preferred leaders.
        kind = ElectionType(request.election_type) if context.api_version > 0 else ElectionType.PREFERRED
    except ValueError:
        problem = f"there is no election type {request.election_type}"
        return refusal(request, ApiError(ErrorCode.INVALID_REQUEST, problem))
    try:
        results = await services.controller.elect_leaders(kind, request.topic_partitions)
    except ApiError as error:
        return refusal(request, error)
    return ElectLeadersResponse(replica_election_results=results)


def refusal(request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    """No election was held; version 0 only has errors of partitions."""
    results = [
        ReplicaElectionResult(
            row.topic, [PartitionResult(index, error.code, error.message) for index in row.partitions]
        )
        for row in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)
