"""The policy for all connections of a gateway: how many each caller may have, and how slow a reader may be."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterable

from penstock.gateway.web.access import Access
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.quotas import UNKNOWN, CallerQuota, caller_at

PROXY = "a trusted proxy"
# The key in a scope for the principal of the client's certificate.
CERTIFICATE_KEY = "penstock.certificate"


class ConnectionPolicy:
    """The limits of a gateway's connections, and how many are open.

    `trusted_proxies` are addresses or networks whose connections carry the requests of many callers.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        access: Access | None = None,
        trusted_proxies: Iterable[str] = (),
        certificate_of: Callable[[asyncio.BaseTransport], str | None] = lambda _: None,
    ) -> None:
        """`certificate_of` returns the principal of a TLS client's certificate."""
        self.certificate_of = certificate_of
        self.limits = limits or Limits()
        self.access = access or Access()
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in trusted_proxies]
        self.quota = CallerQuota("connections", self.limits, "connections", {PROXY})
        # Connections that are being closed and still read to their end.
        self.lingering = 0

    def caller(self, client: tuple[str, int] | None) -> str:
        """The caller at the other end."""
        if client is None:
            return UNKNOWN
        if self._proxies and any(ipaddress.ip_address(client[0]) in network for network in self._proxies):
            return PROXY
        return caller_at(client[0])


class SlowReader:
    """Detects a peer that does not read what is written to it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since = 0.0
        self._unsent = 0
        self._is_full = False

    def full(self, now: float, unsent: int) -> None:
        """The transport's write buffer is full."""
        self._is_full, self._since, self._unsent = True, now, unsent

    def drained(self) -> None:
        """The write buffer has room again."""
        self._is_full = False

    def is_stuck(self, now: float, transport: asyncio.Transport) -> bool:
        """Whether the peer read too little within the time limit."""
        unsent = transport.get_write_buffer_size()
        if not self._is_full:
            # Nothing more is written, and the connection stays open until the peer has read the rest.
            if transport.is_closing():
                self.full(now, unsent)
            return False
        elapsed_s = now - self._since
        if elapsed_s < self._limits.reader_timeout_s:
            return False
        if self._unsent - unsent < elapsed_s * self._limits.bytes_per_s_min:
            return True
        self.full(now, unsent)
        return False


class SlowReaderProtocol(asyncio.Protocol):
    """Precedes uvicorn's protocol among a connection's bases, and notifies `reader` when its write buffer is full."""

    reader: SlowReader
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is written to."""
        self.reader.full(self.loop.time(), self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.reader.drained()
        super().resume_writing()
