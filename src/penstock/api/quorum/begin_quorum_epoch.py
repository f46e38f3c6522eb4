"""Versions 0-1. KIP-595: a new leader of the metadata quorum makes itself known."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse


@controller_api(
    ApiKey.BEGIN_QUORUM_EPOCH,
    versions={
        0: "the first version (KIP-595)",
        1: "flexible versions (KIP-482); voter, directory id and leader addresses (KIP-853)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
def begin_quorum_epoch(
    services: ControllerServices, request: BeginQuorumEpochRequest, context: RequestContext
) -> BeginQuorumEpochResponse | asyncio.Future[BeginQuorumEpochResponse]:
    return services.raft.requests.begin_epoch(request, context.client.listener_name)
