"""Versions 4-18. KIP-595: voters and observers follow the metadata log by fetching it from its leader."""

from __future__ import annotations

from penstock.api.quorum.peer_requests import peer_api
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.apis import ApiKey
from penstock.wire.messages.fetch import FetchResponse

API = peer_api(ApiKey.FETCH, (4, 18), RaftRequests.fetch, FetchResponse)
