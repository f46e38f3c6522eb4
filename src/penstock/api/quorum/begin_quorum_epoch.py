"""Versions 0-1. KIP-595: a new leader of the metadata quorum makes itself known."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse

API = Api(
    ApiKey.BEGIN_QUORUM_EPOCH,
    (0, 1),
    on_controller=lambda services: guarded(
        services.access, Operation.CLUSTER_ACTION, make_begin_quorum_epoch(services.raft), BeginQuorumEpochResponse
    ),
)


def make_begin_quorum_epoch(raft: RaftDriver) -> Handler:
    """The handler."""

    def begin_quorum_epoch(request: BeginQuorumEpochRequest, context: RequestContext) -> BeginQuorumEpochResponse:
        return raft.requests.begin_epoch(request, context.client.listener_name)

    return begin_quorum_epoch
