"""Requests of this broker to the brokers of its cluster, of which it is one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import Request

R = TypeVar("R")


class RequestSender(Protocol):
    """A connection to another broker."""

    def send(self, message: Request[R], *, timeout_ms: int | None = None) -> asyncio.Future[R]: ...


class Brokers:
    """Asks a broker by its number: this one with `ask_itself`, the others over connections that are kept.

    Requests on one connection are answered in their order, so every caller has Brokers of its own, and within
    them a `lane` for each request that may wait for news.
    """

    def __init__(
        self,
        node_id: int,
        make_peer: Callable[[int], RequestSender],
        ask_itself: Callable[[Request[object]], Awaitable[object]],
    ) -> None:
        self.node_id = node_id
        self._make_peer = make_peer
        self._ask_itself = ask_itself
        self._peers: dict[tuple[int, int], RequestSender] = {}

    async def ask(self, broker_id: int, request: Request[R], *, timeout_ms: int | None = None, lane: int = -1) -> R:
        """A broker's response; raises PeerLost or ApiError. Without a time that of all requests to brokers counts."""
        if broker_id < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
        if broker_id == self.node_id:
            return cast(R, await self._ask_itself(request))
        peer = self._peers.get((broker_id, lane))
        if peer is None:
            peer = self._peers[broker_id, lane] = self._make_peer(broker_id)
        return await peer.send(request, timeout_ms=timeout_ms)
