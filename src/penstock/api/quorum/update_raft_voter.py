"""Version 0. KIP-853: a voter reports its endpoints and the versions of the quorum that it supports to the leader."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.core.raft.voters import Voter, VoterEndpoint
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.raft.wire import epoch_error
from penstock.wire.apis import ApiKey
from penstock.wire.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse


@controller_api(
    ApiKey.UPDATE_RAFT_VOTER,
    versions={
        0: "the first version (KIP-853)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def update_raft_voter(
    services: ControllerServices, request: UpdateRaftVoterRequest, context: RequestContext
) -> UpdateRaftVoterResponse:
    versions = request.kraft_version_feature
    voter = Voter(
        request.voter_id,
        request.voter_directory_id,
        tuple(VoterEndpoint(one.name, one.host, one.port) for one in request.listeners),
        versions.min_supported_version,
        versions.max_supported_version,
    )
    code: int = ErrorCode.NONE
    try:
        services.raft.check_cluster(request.cluster_id)
        code = epoch_error(request.current_leader_epoch, services.raft.epoch, leads=services.raft.quorum.is_leader)
        if not code:
            await services.raft.voter_changes.update(voter)
    except ApiError as error:
        code = error.code
    name = context.client.listener_name
    address = services.raft.addresses.named(services.raft.leader_id, name) if services.raft.leader_id >= 0 else None
    leader = CurrentLeader(services.raft.leader_id, services.raft.epoch, *(address or ("", -1)))
    return UpdateRaftVoterResponse(error_code=code, current_leader=leader if address else CurrentLeader())
