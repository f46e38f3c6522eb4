"""Versions 0-1. KIP-630: a follower that the log no longer reaches back to takes a snapshot, piece by piece."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.model.access import Operation
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


@controller_api(
    ApiKey.FETCH_SNAPSHOT,
    versions={
        0: "the first version (KIP-630)",
        1: "the replica's directory id in the request, leader addresses in the response (KIP-853)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
def fetch_snapshot(
    services: ControllerServices, request: FetchSnapshotRequest, context: RequestContext
) -> FetchSnapshotResponse | asyncio.Future[FetchSnapshotResponse]:
    return services.raft.requests.fetch_snapshot(request, context.client.listener_name)
