"""Versions 0-1. KIP-595: a leader of the metadata quorum resigns."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

API = Api(
    ApiKey.END_QUORUM_EPOCH,
    (0, 1),
    on_controller=lambda services: guarded(
        services.access, Operation.CLUSTER_ACTION, make_end_quorum_epoch(services.raft), EndQuorumEpochResponse
    ),
)


def make_end_quorum_epoch(raft: RaftDriver) -> Handler:
    """The handler."""

    def end_quorum_epoch(request: EndQuorumEpochRequest, context: RequestContext) -> EndQuorumEpochResponse:
        return raft.requests.end_epoch(request, context.client.listener_name)

    return end_quorum_epoch
