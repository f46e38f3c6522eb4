"""Versions 0-1. KIP-595: a leader of the metadata quorum resigns."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


@controller_api(
    ApiKey.END_QUORUM_EPOCH,
    versions={
        0: "the first version: ids of preferred successors (KIP-595)",
        1: "flexible versions (KIP-482); candidates' directory ids, leader addresses (KIP-853)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
def end_quorum_epoch(
    services: ControllerServices, request: EndQuorumEpochRequest, context: RequestContext
) -> EndQuorumEpochResponse | asyncio.Future[EndQuorumEpochResponse]:
    return services.raft.requests.end_epoch(request, context.client.listener_name)
