"""Versions 0-1. KIP-630: a follower that the log no longer reaches back to takes a snapshot, piece by piece."""

from __future__ import annotations

from penstock.api.quorum.peer_requests import peer_api
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch_snapshot import FetchSnapshotResponse

API = peer_api(ApiKey.FETCH_SNAPSHOT, (0, 1), RaftRequests.fetch_snapshot, FetchSnapshotResponse)
