"""A connection of a WebSocket: uvicorn's, which drops whoever does not read what is sent to it."""

from __future__ import annotations

import logging
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.gateway.web.connection_policy import ConnectionPolicy, SlowReader

log = logging.getLogger(__name__)

# How long a slow reader may take to find out why it was dropped.
LINGER_S = 5.0
TOO_SLOW = 1013
REASON = "you read more slowly than records come; connect again, from the offset that you have reached"


class SocketConnection(WebSocketsSansIOProtocol):
    """Made by an HTTP connection, which leaves its place among its caller's connections to this one."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._policy = ConnectionPolicy()
        self._caller: str | None = None
        self._reader = SlowReader(self._policy.limits)
        self._dropped_at: float | None = None

    def take_over(self, policy: ConnectionPolicy, caller: str | None) -> None:
        """Go on in the place of an HTTP connection."""
        self._policy = policy
        self._caller = caller
        self._reader = SlowReader(policy.limits)
        if not self.handshake_initiated:
            # The handshake was more than the WebSocket's own parser takes, and its answer is still to be sent.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if self._caller is not None:
            self._policy.places.give_back(self._caller)
            self._caller = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer is slower than what is sent."""
        self._reader.full(self.loop.time(), self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._reader.drained()
        super().resume_writing()

    def check_deadlines(self, now: float) -> None:
        """Drop the peer if it does not read."""
        if self._dropped_at is not None:
            if now - self._dropped_at > LINGER_S:
                self.transport.abort()
        elif self._reader.is_stuck(now, self.transport):
            log.warning("%s does not read its WebSocket: its connection is closed", self.client)
            self._dropped_at = now
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """A last word behind what has not been read, for one who comes back to it in time."""
        if self.close_sent or self.transport.is_closing():
            return
        self.stop_keepalive()
        self.conn.fail(TOO_SLOW, REASON)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": TOO_SLOW, "reason": REASON})
        self.transport.close()
