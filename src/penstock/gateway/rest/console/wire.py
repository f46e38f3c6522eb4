"""Questions to brokers that librdkafka has no call for, over Penstock's own wire format.

They are asked without TLS and without sign-in. Where the cluster wants either, `BrokerWire` says so, and what depends
on it is left out of answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.model.errors import ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import Peer, PeerLost

CLIENT_ID = "penstock-gateway"
ANSWER_TIMEOUT_MS = 3_000
DEFAULT_PORT = 9092
RETRY_AFTER = {"Retry-After": "1"}
Address = tuple[str, int]


class BrokerWire:
    """A cluster that can be asked: by whichever broker answers, or by one of them in particular."""

    def __init__(self, settings: GatewaySettings) -> None:
        protocol = settings.client_properties.get("security.protocol", "plaintext")
        self.is_plain = protocol.lower() == "plaintext"
        self._bootstrap = list(dict.fromkeys(parse_addresses(settings.bootstrap_servers)))
        self._known: list[Address] = []
        self._env: SystemEnv | None = None
        self._peers: dict[Address, Peer] = {}

    def know(self, addresses: Iterable[Address]) -> None:
        """Remember where brokers are, for the time when those of the bootstrap list are down."""
        self._known = [address for address in dict.fromkeys(addresses) if address not in self._bootstrap]
        wanted = {*self._bootstrap, *self._known}
        for address in [address for address in self._peers if address not in wanted]:
            self._peers.pop(address).close()

    async def ask(self, request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Any:
        """Ask whichever broker answers; a Problem (503) where none does."""
        reasons: dict[str, None] = {}
        # Those with an open connection first: a broker that is down then costs nobody time.
        addresses = sorted([*self._bootstrap, *self._known], key=lambda address: not self._is_open(address))
        for address in addresses:
            try:
                return await self.ask_at(address, request, timeout_ms=timeout_ms)
            except PeerLost as error:
                reasons[str(error)] = None
        raise unreachable("; ".join(reasons))

    async def ask_at(self, address: Address, request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Any:
        """Ask one broker. Raises PeerLost."""
        if not self.is_plain:
            raise Problem(
                501,
                50101,
                "this is asked without TLS and sign-in only, and the gateway's listener wants one of them",
                "start a gateway with a PLAINTEXT listener as its bootstrap address",
            )
        if self._env is None:
            self._env = SystemEnv()
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(self._env, lambda: address, CLIENT_ID, ANSWER_TIMEOUT_MS)
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
            if isinstance(answer, PeerLost):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[address] = answer
        return found

    async def stop(self) -> None:
        """Hang up everywhere."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        if self._env is not None:
            await self._env.close()
            self._env = None

    def _is_open(self, address: Address) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.is_open


def parse_addresses(text: str) -> list[Address]:
    """The addresses of a bootstrap list, which may name protocols and leave ports out."""
    found = []
    for word in text.split(","):
        host, colon, port = word.strip().rpartition("://")[2].rpartition(":")
        if colon and port.isdigit():
            found.append((host.strip("[]"), int(port)))
        elif word.strip():
            found.append((word.strip().strip("[]"), DEFAULT_PORT))
    return found


def check(code: int, message: str | None, what: str) -> None:
    """A Problem where a response carries an error."""
    if code == ErrorCode.NONE:
        return
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    said = f"{what}: {message or name}"
    if name in NOT_NOW:
        raise Problem(503, 50301, said, "try again in a moment", headers=RETRY_AFTER)
    raise Problem(400, 40003, said, "look at what was asked for")


def unreachable(reason: str) -> Problem:
    """No broker answers."""
    return Problem(503, 50301, f"no broker answers: {reason}", "check that the brokers run", headers=RETRY_AFTER)


NOT_NOW = {"NOT_CONTROLLER", "REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
