"""What a handler knows about the requester."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutine
from typing import Any, NamedTuple

from penstock.model.access import ANONYMOUS
from penstock.wire.primitives import Buffer


class RepeatedHeader(NamedTuple):
    """What the header of a request said, for the next one of its route that begins with the same bytes."""

    route: Any
    data: bytes
    context: Any
    body_at: int


NO_HEADER = RepeatedHeader(None, b"", None, 0)


class Client:
    """One connection's peer. Access lists use `host` and `principal`."""

    __slots__ = (
        "_is_closed",
        "_on_closed",
        "address",
        "api_key",
        "client_id",
        "has_waited",
        "host",
        "is_forwarded",
        "is_token",
        "last_header",
        "last_write",
        "listener_name",
        "mute",
        "principal",
        "security_protocol",
        "software_name",
        "software_version",
        "waiting_bytes",
    )

    def __init__(
        self,
        address: tuple[str, int],
        listener_name: str,
        *,
        principal: str = ANONYMOUS,
        is_token: bool = False,
        security_protocol: str = "PLAINTEXT",
        is_forwarded: bool = False,
    ) -> None:
        """`is_forwarded` is for a client of a broker that sent its request on."""
        self.address = address
        self.host = address[0]
        self.listener_name = listener_name
        self.principal = principal
        self.is_token = is_token
        self.is_forwarded = is_forwarded
        # Of the request that is served.
        self.api_key = -1
        self.client_id: str | None = None
        # The header of the last request, which most clients repeat: see the dispatcher.
        self.last_header = NO_HEADER
        self.security_protocol = security_protocol
        # Delays further requests for this many milliseconds; set by the connection.
        self.mute: Callable[[int], None] | None = None
        self.software_name = ""
        self.software_version = ""
        # Whether a request has waited until its client, which may have come by another connection before, was no longer
        # throttled; from then on throttle times apply to this connection.
        self.has_waited = False
        # The last produce of this connection that waits to be appended, if any.
        self.last_write: asyncio.Future[None] | None = None
        # What such produces hold of records.
        self.waiting_bytes = 0
        self._on_closed: dict[str, Callable[[], None]] | None = None
        self._is_closed = False

    def when_closed(self, purpose: str, listener: Callable[[], None]) -> None:
        """Have `listener` called when the connection closes, or now if it has; one per purpose, the last one counts."""
        if self._is_closed:
            listener()
            return
        if self._on_closed is None:
            self._on_closed = {}
        self._on_closed[purpose] = listener

    def forget_when_closed(self, purpose: str, listener: Callable[[], None]) -> None:
        """Do not call `listener` any more; a later one for the same purpose stays."""
        if self._on_closed is not None and self._on_closed.get(purpose) is listener:
            del self._on_closed[purpose]

    def closed(self) -> None:
        """The connection has closed."""
        self._is_closed = True
        self.last_header = NO_HEADER
        listeners, self._on_closed = self._on_closed, None
        for listener in (listeners or {}).values():
            listener()


class RequestContext(NamedTuple):
    """The context of one request."""

    api_version: int
    client_id: str | None
    client: Client


# A handler takes a request and its context. It returns a response, a future or coroutine of one, or None when the
# request has no response.
Handler = Callable[[object, RequestContext], object]

Reply = list[Buffer]
# Serves a request's frame: returns its reply, a future of it, or None for no reply.
Answer = Callable[[bytearray, Client], Reply | asyncio.Future[Reply | None] | None]


async def settled(response: object) -> object:
    """A handler's response, now or later."""
    return await response if isinstance(response, asyncio.Future) or iscoroutine(response) else response
