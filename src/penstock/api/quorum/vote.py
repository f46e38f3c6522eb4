"""Versions 0-2. KIP-595 votes, KIP-996 pre-votes, KIP-853 directory ids."""

from __future__ import annotations

from penstock.api.quorum.peer_requests import peer_api
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.apis import ApiKey
from penstock.wire.messages.vote import VoteResponse

API = peer_api(ApiKey.VOTE, (0, 2), RaftRequests.vote, VoteResponse)
