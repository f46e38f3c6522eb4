"""Versions 0-1. KIP-595: a leader of the metadata quorum resigns."""

from __future__ import annotations

from penstock.api.quorum.peer_requests import peer_api
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.apis import ApiKey
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochResponse

API = peer_api(ApiKey.END_QUORUM_EPOCH, (0, 1), RaftRequests.end_epoch, EndQuorumEpochResponse)
