"""Versions 0-1. KIP-595: a new leader of the metadata quorum makes itself known."""

from __future__ import annotations

from penstock.api.quorum.peer_requests import peer_api
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.apis import ApiKey
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse

API = peer_api(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1), RaftRequests.begin_epoch, BeginQuorumEpochResponse)
