"""What a handler knows about who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.wire.primitives import Buffer


class Client:
    """One connection's peer, as far as it has told us."""

    __slots__ = ("_on_closed", "address", "last_write", "listener_name", "software_name", "software_version")

    def __init__(self, address: tuple[str, int], listener_name: str) -> None:
        self.address = address
        self.listener_name = listener_name
        self.software_name = ""
        self.software_version = ""
        # The last produce of this connection that waits to be appended, if one does.
        self.last_write: asyncio.Future[None] | None = None
        self._on_closed: dict[str, Callable[[], None]] | None = None

    def when_closed(self, purpose: str, listener: Callable[[], None]) -> None:
        """Have `listener` called when the connection is gone; one for each purpose, the last one counts."""
        if self._on_closed is None:
            self._on_closed = {}
        self._on_closed[purpose] = listener

    def closed(self) -> None:
        """The connection is gone."""
        listeners, self._on_closed = self._on_closed, None
        for listener in (listeners or {}).values():
            listener()


class RequestContext(NamedTuple):
    """One request's circumstances."""

    api_version: int
    client_id: str | None
    client: Client


# A handler takes a request and its circumstances. It answers with a response, with a future or coroutine of one, or
# with None when the request wants no answer.
Handler = Callable[[Any, RequestContext], Any]

Reply = list[Buffer]
# Serves a request's frame: with its reply, a future of it, or nothing where none is wanted.
Answer = Callable[[bytearray, Client], Reply | asyncio.Future[Reply | None] | None]
