"""Questions to brokers that librdkafka has no call for, with Penstock's own client; its failures as problems.

It signs in by PLAIN and SCRAM. Where the gateway is told to sign in by what only librdkafka can do, `BrokerWire` says
so, and what depends on it is left out of answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.client.peers import ANSWER_TIMEOUT_MS, Peers
from penstock.client.settings import read_settings
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.model.errors import error_name

RETRY_AFTER = {"Retry-After": "1"}
NOT_NOW = {"NOT_CONTROLLER", "REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}


class BrokerWire:
    """A cluster that can be asked: by whichever broker answers, or by one of them in particular."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._refused = ""
        self._peers: Peers | None = None
        try:
            self._peers = Peers(read_settings({name: str(value) for name, value in settings.client().items()}))
        except ValueError as error:
            self._refused = str(error)

    @property
    def is_usable(self) -> bool:
        """Whether brokers can be asked at all."""
        return self._peers is not None

    def know(self, addresses: Iterable[Address]) -> None:
        """Remember where brokers are, for the time when those of the bootstrap list are down."""
        if self._peers is not None:
            self._peers.know(addresses)

    async def ask(self, request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Any:
        """Ask whichever broker answers; a Problem where none does."""
        try:
            return await self._asked().ask(request, timeout_ms=timeout_ms)
        except NoAnswer as error:
            raise Problem(
                503, 50301, f"no broker answers: {error}", "check that the brokers run", headers=RETRY_AFTER
            ) from None

    async def ask_each(
        self, addresses: Iterable[Address], request: Any, *, timeout_ms: int = ANSWER_TIMEOUT_MS
    ) -> dict[Address, Any]:
        """What several brokers answer; those that do not are left out."""
        return await self._asked().ask_each(addresses, request, timeout_ms=timeout_ms)

    async def stop(self) -> None:
        """Hang up everywhere."""
        if self._peers is not None:
            await self._peers.close()

    def _asked(self) -> Peers:
        if self._peers is None:
            fix = "start the gateway with a sign-in that it can do itself"
            raise Problem(501, 50101, f"the gateway cannot ask brokers directly: {self._refused}", fix)
        return self._peers


def check(code: int, message: str | None, what: str) -> None:
    """A Problem where a response carries an error."""
    if not code:
        return
    said = f"{what}: {message or error_name(code)}"
    if error_name(code) in NOT_NOW:
        raise Problem(503, 50301, said, "try again in a moment", headers=RETRY_AFTER)
    raise Problem(400, 40003, said, "look at what was asked for")
