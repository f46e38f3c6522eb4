"""Another node of the cluster, over the network that this node lives in; `client.peer` says how it works."""

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

# What the client calls by what is missing, a node calls by whom it has lost.
PeerLost = NoAnswer
PeerUnsupported = NotServed


class PeerSecurity(NamedTuple):
    """How this node shows the others who it is: `tls` gives the context for the next connection."""

    tls: Callable[[], ssl.SSLContext] | None = None
    credentials: Credentials | None = None


PLAIN_TEXT = PeerSecurity()


class Peer(peer.Peer):
    """Another node, as its clients here see it."""

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
