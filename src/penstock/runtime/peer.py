"""Another node of the cluster, over this node's environment; `client.peer` does the work."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.client import peer
from penstock.client.failures import NoAnswer, NotServed
from penstock.client.settings import Credentials
from penstock.runtime.env import Env

__all__ = ["PLAIN_TEXT", "Peer", "PeerLost", "PeerSecurity", "PeerUnsupported"]

# The client's name for a missing connection; a node has lost a peer.
PeerLost = NoAnswer
PeerUnsupported = NotServed


class PeerSecurity(NamedTuple):
    """How this node authenticates to others: `tls` returns the context for the next connection."""

    tls: Callable[[], ssl.SSLContext] | None = None
    credentials: Credentials | None = None


PLAIN_TEXT = PeerSecurity()


class Peer(peer.Peer):
    """A connection to another node."""

    def __init__(
        self,
        env: Env,
        address: Callable[[], tuple[str, int] | None],
        client_id: str,
        request_timeout_ms: int,
        security: PeerSecurity = PLAIN_TEXT,
    ) -> None:
        connect = env.network.connect if security.tls is None else partial(env.network.connect, tls=security.tls)
        super().__init__(address, client_id, request_timeout_ms, connect, env.spawn, security.credentials)
