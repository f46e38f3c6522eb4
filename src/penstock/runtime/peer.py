"""Another node of the cluster, over the network that this node lives in; `client.peer` says how it works."""

from __future__ import annotations

from collections.abc import Callable

from penstock.client import peer
from penstock.client.failures import NoAnswer, NotServed
from penstock.runtime.env import Env

__all__ = ["Peer", "PeerLost", "PeerUnsupported"]

# What the client calls by what is missing, a node calls by whom it has lost.
PeerLost = NoAnswer
PeerUnsupported = NotServed


class Peer(peer.Peer):
    """Another node, as its clients here see it."""

    def __init__(
        self, env: Env, address: Callable[[], tuple[str, int] | None], client_id: str, request_timeout_ms: int
    ) -> None:
        super().__init__(address, client_id, request_timeout_ms, env.network.connect, env.spawn)
