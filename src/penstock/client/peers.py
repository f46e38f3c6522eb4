"""A cluster that can be asked from an event loop: whichever broker answers, or one of them in particular."""

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
    """Peers of one cluster, opened when they are needed and kept. They belong to the loop that first asks."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._known: list[Address] = []
        self._peers: dict[Address, Peer] = {}

    def know(self, addresses: Iterable[Address]) -> None:
        """Remember where brokers are, for the time when those of the bootstrap list are down."""
        self._known = [address for address in dict.fromkeys(addresses) if address not in self._settings.bootstrap]
        wanted = {*self._settings.bootstrap, *self._known}
        for address in [address for address in self._peers if address not in wanted]:
            self._peers.pop(address).close()

    async def ask(self, request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Any:
        """Ask whichever broker answers. Raises NoAnswer, with the reason of each, when none does."""
        reasons: dict[str, None] = {}
        # Those with an open connection first: a broker that is down then costs nobody time.
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
        """What several brokers answer; those that do not are left out."""
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
        """Hang up everywhere, in the middle of what is under way."""
        for peer in self._peers.values():
            peer.close(flush=False)
        self._peers.clear()
        # Transports are closed by the loop's next turn, which may be its last.
        await asyncio.sleep(0)

    async def _connect(self, host: str, port: int, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        # Certificates are files, which are not read on a loop that others share.
        context = await asyncio.to_thread(tls_context, self._settings) if self._settings.tls else None
        async with asyncio.timeout(self._settings.connect_timeout_s):
            await asyncio.get_running_loop().create_connection(make_protocol, host, port, ssl=context)

    def _is_open(self, address: Address) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.is_open


def _spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    # The peer holds the task, and what may go wrong in it is told to those who wait for answers.
    return asyncio.get_running_loop().create_task(work, name=name)
