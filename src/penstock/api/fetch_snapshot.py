"""Versions 0-1. KIP-630: a follower that the log no longer reaches back to takes a snapshot, piece by piece."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.runtime.raft.driver import RaftDriver
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


def make_fetch_snapshot(raft: RaftDriver) -> Handler:
    """The handler."""

    def fetch_snapshot(request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
        return raft.requests.fetch_snapshot(request)

    return fetch_snapshot
