"""Version 0. KIP-853: take a voter's vote away; it may go on as an observer."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def make_remove_raft_voter(services: SharedServices) -> Handler:
    """The handler."""

    async def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
        try:
            services.raft.check_cluster(request.cluster_id)
            await services.raft.voter_changes.remove(request.voter_id, request.voter_directory_id)
        except ApiError as error:
            return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
        return RemoveRaftVoterResponse(error_message=None)

    return remove_raft_voter


API = shared_api(
    ApiKey.REMOVE_RAFT_VOTER,
    (0, 0),
    guarded(Operation.ALTER, make_remove_raft_voter, RemoveRaftVoterResponse),
    is_forwarded=True,
)
