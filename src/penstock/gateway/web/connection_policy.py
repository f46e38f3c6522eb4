"""What holds for all connections of a gateway: who may have how many, and how slow a reader may be."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable

from penstock.gateway.web.access import Access
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.shares import UNKNOWN, Shares, caller_at

PROXY = "a trusted proxy"


class ConnectionPolicy:
    """The limits of a gateway's connections, and how many there are.

    `trusted_proxies` are addresses or networks whose connections carry the requests of many callers.
    """

    def __init__(self, limits: Limits | None = None, access: Access | None = None, trusted_proxies: Iterable[str] = ()):
        self.limits = limits or Limits()
        self.access = access or Access()
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in trusted_proxies]
        self.places = Shares("connections", self.limits, "connections", {PROXY})
        # Connections that were given up and are still to be read to their end.
        self.leaving = 0

    def caller(self, client: tuple[str, int] | None) -> str:
        """Who is at the other end."""
        if client is None:
            return UNKNOWN
        if self._proxies and any(ipaddress.ip_address(client[0]) in network for network in self._proxies):
            return PROXY
        return caller_at(client[0])


class SlowReader:
    """Notices a peer that does not fetch what is written to it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since = 0.0
        self._unsent = 0
        self._is_full = False

    def full(self, now: float, unsent: int) -> None:
        """The transport's buffer is full."""
        self._is_full, self._since, self._unsent = True, now, unsent

    def drained(self) -> None:
        """There is room in it again."""
        self._is_full = False

    def is_stuck(self, now: float, transport: asyncio.Transport) -> bool:
        """Whether too little was fetched in the time that is allowed for it."""
        unsent = transport.get_write_buffer_size()
        if not self._is_full:
            # Nobody writes any more, and the connection stays until the rest has been fetched.
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
