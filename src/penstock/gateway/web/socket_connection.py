"""A WebSocket connection: uvicorn's, which is closed if the peer does not read."""

from __future__ import annotations

import logging
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.gateway.web.connection_policy import CERTIFICATE_KEY, ConnectionPolicy, SlowReader, SlowReaderProtocol

log = logging.getLogger(__name__)

# How long a slow reader may take to read the close frame.
LINGER_S = 5.0
TOO_SLOW = 1013
REASON = "the client reads more slowly than records arrive; reconnect from the last offset received"


class SocketConnection(SlowReaderProtocol, WebSocketsSansIOProtocol):
    """Created by an HTTP connection, which hands over its share of the caller's quota."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._policy = ConnectionPolicy()
        self._caller: str | None = None
        self.reader = SlowReader(self._policy.limits)
        self._dropped_at: float | None = None

    def take_over(self, policy: ConnectionPolicy, caller: str | None, certificate: str | None) -> None:
        """Continue in place of an HTTP connection, whose client sent a certificate of this principal."""
        self._policy = policy
        self._caller = caller
        self.reader = SlowReader(policy.limits)
        if self.handshake_initiated and certificate is not None:
            self.scope[CERTIFICATE_KEY] = certificate  # type: ignore[literal-required]
        if not self.handshake_initiated:
            # The WebSocket parser rejected the handshake as too large, and its response is still to be sent.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection holds."""
        if self._caller is not None:
            self._policy.quota.release(self._caller)
            self._caller = None
        super().connection_lost(exc)

    def check_deadlines(self, now: float) -> None:
        """Close the connection if the peer does not read."""
        if self._dropped_at is not None:
            if now - self._dropped_at > LINGER_S:
                self.transport.abort()
        elif self.reader.is_stuck(now, self.transport):
            log.warning("%s does not read its WebSocket; closing its connection", self.client)
            self._dropped_at = now
            self._send_close_frame()

    def _send_close_frame(self) -> None:
        """Send a close frame behind the unread data, in case the peer resumes reading in time."""
        if self.close_sent or self.transport.is_closing():
            return
        self.stop_keepalive()
        self.conn.fail(TOO_SLOW, REASON)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": TOO_SLOW, "reason": REASON})
        self.transport.close()
