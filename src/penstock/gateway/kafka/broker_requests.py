"""Requests to brokers and operations on the cluster, with Penstock's own client; failures become Problems.

It supports PLAIN, SCRAM and OAUTHBEARER; a gateway that is configured with another mechanism does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import Cluster, Operation, Refused
from penstock.client.peers import ANSWER_TIMEOUT_MS, Peers
from penstock.client.settings import ConnectionSettings, Credentials, read_settings
from penstock.gateway.kafka.errors import not_allowed, problem_of
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.model.errors import error_name
from penstock.wire.apis import Request

RETRY_AFTER = {"Retry-After": "1"}
NOT_NOW = {"NOT_CONTROLLER", "REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def connection_settings(settings: GatewaySettings, credentials: Credentials | None = None) -> ConnectionSettings:
    """How to connect; raises ValueError for settings that only librdkafka supports."""
    words = {name: str(value) for name, value in settings.client().items() if not callable(value)}
    if credentials is None:
        return read_settings(words)
    protocol = words.pop("security.protocol", "PLAINTEXT").upper()
    # The mechanism and the password among the settings don't count.
    read = read_settings({**words, "security.protocol": protocol.removeprefix("SASL_")})
    return replace(read, credentials=credentials)


class BrokerWire:
    """Sends requests to any broker that answers, or to particular ones."""

    def __init__(self, settings: GatewaySettings, credentials: Credentials | None = None) -> None:
        """With `credentials` it signs in with those instead of the ones in the settings. Raises Problem (501)."""
        self._signs_in = (settings, credentials)
        self._branches: set[BrokerWire] = set()
        self._peers = _make_peers(settings, credentials)

    def branch(self) -> BrokerWire:
        """A BrokerWire with the same credentials and connections of its own; it may be stopped before this one."""
        branch = BrokerWire(*self._signs_in)
        self._branches.add(branch)
        return branch

    async def prune(self, branch: BrokerWire) -> None:
        """Stop a branch."""
        self._branches.discard(branch)
        await branch.stop()

    async def renew(self, settings: GatewaySettings, credentials: Credentials) -> None:
        """Use other credentials for sign-ins from now on."""
        self._signs_in = (settings, credentials)
        for branch in [*self._branches]:
            await branch.renew(settings, credentials)
        old, self._peers = self._peers, _make_peers(settings, credentials)
        await old.close()

    @property
    def throttled_until(self) -> float:
        """Until when brokers delay requests, on the monotonic clock."""
        return max([self._peers.throttled_until, *(branch.throttled_until for branch in self._branches)])

    async def run(
        self,
        operation: Callable[Concatenate[Cluster, P], Operation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Perform an operation on the cluster; raises Problem if it fails."""
        try:
            return await self._peers.run(operation, *arguments, **named)
        except (Refused, NoAnswer, TimeoutError, ValueError) as error:
            raise problem_of(error) from None

    async def ask(self, request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> R:
        """Send a request to any broker that responds; raises Problem if none does."""
        try:
            return await self._peers.ask(request, timeout_ms=timeout_ms)
        except NoAnswer as error:
            raise Problem(
                50301, f"no broker answers: {error}", "check that the brokers are running", headers=RETRY_AFTER
            ) from None

    async def ask_at(self, address: Address, request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> R:
        """Send a request to one broker. Raises NoAnswer."""
        return await self._peers.ask_at(address, request, timeout_ms=timeout_ms)

    async def ask_each(
        self, addresses: Iterable[Address], request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS
    ) -> dict[Address, R]:
        """The responses of several brokers; those that do not respond are left out."""
        return await self._peers.ask_each(addresses, request, timeout_ms=timeout_ms)

    async def ask_each_apart(
        self, addresses: Iterable[Address], request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS
    ) -> dict[Address, R]:
        """Like `ask_each`, over separate connections: brokers respond in order, so slow requests would delay others."""
        branch = self.branch()
        try:
            return await branch.ask_each(addresses, request, timeout_ms=timeout_ms)
        finally:
            await self.prune(branch)

    async def stop(self) -> None:
        """Close all connections."""
        for branch in [*self._branches]:
            await self.prune(branch)
        await self._peers.close()


def _make_peers(settings: GatewaySettings, credentials: Credentials | None) -> Peers:
    try:
        return Peers(connection_settings(settings, credentials))
    except ValueError as error:
        why = f"the gateway cannot connect to brokers with its settings: {error}"
        raise Problem(50101, why, "configure it with SASL PLAIN, SCRAM or OAUTHBEARER") from None


def check(code: int, message: str | None, what: str) -> None:
    """Raises Problem if a response carries an error."""
    if not code:
        return
    text = f"{what}: {message or error_name(code)}"
    if error_name(code).endswith("AUTHORIZATION_FAILED"):
        raise not_allowed(text)
    if error_name(code) in NOT_NOW:
        raise Problem(50301, text, "try again in a moment", headers=RETRY_AFTER)
    raise Problem(40003, text, "check the request")
