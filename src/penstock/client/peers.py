"""A client of a cluster for an event loop: requests to any broker, or to a given one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.client.peer import Peer
from penstock.client.settings import ConnectionSettings
from penstock.client.tls import tls_context

ANSWER_TIMEOUT_MS = 3_000


class Peers:
    """Peers of one cluster, opened on demand and kept. They belong to the loop that first uses them."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._known: list[Address] = []
        self._peers: dict[Address, Peer] = {}

    def remember_addresses(self, addresses: Iterable[Address]) -> None:
        """Remember the brokers' addresses, for when the bootstrap servers are down."""
        self._known = [address for address in dict.fromkeys(addresses) if address not in self._settings.bootstrap]
        wanted = {*self._settings.bootstrap, *self._known}
        for address in [address for address in self._peers if address not in wanted]:
            self._peers.pop(address).close()

    async def ask(self, request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Any:
        """Ask any broker that answers. Raises NoAnswer, with the reasons of all, if none does."""
        reasons: dict[str, None] = {}
        # Open connections first, so that a broker that is down costs no time.
        addresses = sorted([*self._settings.bootstrap, *self._known], key=lambda address: not self._is_open(address))
        for address in addresses:
            try:
                return await self.ask_at(address, request, timeout_ms=timeout_ms)
            except NoAnswer as error:
                reasons[str(error)] = None
        raise NoAnswer("; ".join(reasons))

    async def ask_at(self, address: Address, request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Any:
        """Ask one broker. Raises NoAnswer."""
        peer = self._peers.get(address)
        if peer is None:
            settings = self._settings
            peer = self._peers[address] = Peer(
                lambda: address, settings.client_id, ANSWER_TIMEOUT_MS, self._connect, _spawn, settings.credentials
            )
        return await peer.send(request, timeout_ms=timeout_ms)

    async def ask_each(
        self, addresses: Iterable[Address], request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS
    ) -> dict[Address, Any]:
        """The responses of several brokers; those that do not answer are left out."""
        wanted = list(addresses)
        answers = await asyncio.gather(
            *(self.ask_at(address, request, timeout_ms=timeout_ms) for address in wanted), return_exceptions=True
        )
        found: dict[Address, Any] = {}
        for address, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, NoAnswer):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[address] = answer
        return found

    async def close(self) -> None:
        """Close all connections, including requests in progress."""
        for peer in self._peers.values():
            peer.close(flush=False)
        self._peers.clear()
        # Transports are closed in the loop's next iteration, which may be its last.
        await asyncio.sleep(0)

    async def _connect(self, host: str, port: int, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        # Certificates are read from files, which must not block the loop.
        context = await asyncio.to_thread(tls_context, self._settings) if self._settings.tls else None
        async with asyncio.timeout(self._settings.connect_timeout_s):
            await asyncio.get_running_loop().create_connection(make_protocol, host, port, ssl=context)

    def _is_open(self, address: Address) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.is_open


def _spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    # The peer holds the task, and its errors reach those who wait for responses.
    return asyncio.get_running_loop().create_task(work, name=name)
