"""Version 0. KIP-853: take a voter's vote away; it may go on as an observer."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

API = shared_api(
    ApiKey.REMOVE_RAFT_VOTER,
    (0, 0),
    lambda services: guarded(
        services.access, Operation.ALTER, make_remove_raft_voter(services.raft), RemoveRaftVoterResponse
    ),
    is_forwarded=True,
)


def make_remove_raft_voter(raft: RaftDriver) -> Handler:
    """The handler."""

    async def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
        try:
            raft.check_cluster(request.cluster_id)
            await raft.voter_changes.remove(request.voter_id, request.voter_directory_id)
        except ApiError as error:
            return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
        return RemoveRaftVoterResponse(error_message=None)

    return remove_raft_voter
