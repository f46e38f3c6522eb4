"""Versions 0-2. KIP-595 votes, KIP-996 pre-votes, KIP-853 directory ids."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.vote import VoteRequest, VoteResponse


@controller_api(
    ApiKey.VOTE,
    versions={
        0: "the first version (KIP-595)",
        1: "voter and directory ids in the request, leader addresses in the response (KIP-853)",
        2: "pre-votes, which do not raise the epoch (KIP-996)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
def vote(
    services: ControllerServices, request: VoteRequest, context: RequestContext
) -> VoteResponse | asyncio.Future[VoteResponse]:
    return services.raft.requests.vote(request, context.client.listener_name)
