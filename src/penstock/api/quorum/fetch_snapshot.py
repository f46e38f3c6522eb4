"""Versions 0-1. KIP-630: a follower that the log no longer reaches back to takes a snapshot, piece by piece."""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

API = Api(
    ApiKey.FETCH_SNAPSHOT,
    (0, 1),
    on_controller=lambda services: guarded(
        services.access, Operation.CLUSTER_ACTION, make_fetch_snapshot(services.raft), FetchSnapshotResponse
    ),
)


def make_fetch_snapshot(raft: RaftDriver) -> Handler:
    """The handler."""

    def fetch_snapshot(request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
        return raft.requests.fetch_snapshot(request, context.client.listener_name)

    return fetch_snapshot
