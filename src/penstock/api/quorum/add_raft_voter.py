"""Versions 0-1. KIP-853: give an observer of the metadata log a vote, once it has caught up. KIP-1186 early answers."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.core.raft.voters import Voter, VoterEndpoint
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


@forwarded_api(
    ApiKey.ADD_RAFT_VOTER,
    versions={
        0: "the first version (KIP-853)",
        1: "the request can have the answer before the change is committed (KIP-1186)",
    },
    cluster_right=Operation.ALTER,
)
async def add_raft_voter(
    services: SharedServices, request: AddRaftVoterRequest, context: RequestContext
) -> AddRaftVoterResponse:
    endpoints = tuple(VoterEndpoint(one.name, one.host, one.port) for one in request.listeners)
    try:
        services.raft.check_cluster(request.cluster_id)
        voter = Voter(request.voter_id, request.voter_directory_id, endpoints)
        await services.raft.voter_changes.add(voter, request.timeout_ms, until_committed=request.ack_when_committed)
    except ApiError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    return AddRaftVoterResponse(error_message=None)
