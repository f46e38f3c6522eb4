"""Version 0. KIP-853: take a voter's vote away; it may continue as an observer."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@forwarded_api(
    ApiKey.REMOVE_RAFT_VOTER,
    versions={
        0: "the first version (KIP-853)",
    },
    cluster_right=Operation.ALTER,
)
async def remove_raft_voter(
    services: SharedServices, request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    try:
        services.raft.check_cluster(request.cluster_id)
        await services.raft.voter_changes.remove(request.voter_id, request.voter_directory_id)
    except ApiError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse(error_message=None)
