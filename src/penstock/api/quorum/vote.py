"""Versions 0-2. KIP-595 votes, KIP-996 pre-votes, KIP-853 directory ids."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.vote import VoteRequest, VoteResponse

API = Api(
    ApiKey.VOTE,
    (0, 2),
    on_controller=lambda services: guarded(
        services.access, Operation.CLUSTER_ACTION, make_vote(services.raft), VoteResponse
    ),
)


def make_vote(raft: RaftDriver) -> Handler:
    """The handler."""

    def vote(request: VoteRequest, context: RequestContext) -> VoteResponse:
        return raft.requests.vote(request, context.client.listener_name)

    return vote
