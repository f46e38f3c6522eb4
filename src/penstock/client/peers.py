"""A client of a cluster for an event loop: requests to any broker, to a given one, and operations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Concatenate, ParamSpec, TypeVar

from penstock.client.address import Address
from penstock.client.failures import NoAnswer, all_failed
from penstock.client.operations.routing import Cluster, Operation, Pause, Step, ToAny, ToBroker, patience_over
from penstock.client.peer import Peer
from penstock.client.protocol import VERSIONS_MAX
from penstock.client.settings import ConnectionSettings
from penstock.client.tls import tls_context
from penstock.wire.apis import Request

ANSWER_TIMEOUT_MS = 3_000
# How long an operation is retried.
PATIENCE_S = 15.0

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


async def carried_out(steps: Operation[T], perform: Callable[[Step], Awaitable[object]]) -> T:
    """The result of an operation whose steps `perform` carries out; those without an answer raise NoAnswer in it."""
    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except NoAnswer as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as done:
        found: T = done.value
        return found


class Peers:
    """Peers of one cluster, opened on demand and kept. They belong to the loop that first uses them."""

    def __init__(self, settings: ConnectionSettings, *, patience_s: float = PATIENCE_S) -> None:
        self.cluster = Cluster()
        # Brokers delay this client's requests until this moment of the monotonic clock.
        self.throttled_until = 0.0
        self._settings = settings
        self._patience_s = patience_s
        self._peers: dict[Address, Peer] = {}

    async def run(
        self,
        operation: Callable[Concatenate[Cluster, P], Operation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Perform an operation. Raises what it raises, and TimeoutError when it was retried for too long."""
        deadline = time.monotonic() + self._patience_s
        return await carried_out(
            operation(self.cluster, *arguments, **named), lambda step: self._perform(step, deadline)
        )

    async def _perform(self, step: Step, deadline: float) -> object:
        if isinstance(step, Pause):
            if time.monotonic() + step.seconds > deadline:
                raise patience_over(self._settings.bootstrap, self._patience_s, step) from step.problem
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, ToAny):
            return await self.ask(step.request, timeout_ms=_timeout_ms(step.request))
        if isinstance(step, ToBroker):
            return await self.ask_at(step.address, step.request, timeout_ms=_timeout_ms(step.request))
        asked = [self._answer_of(address, request) for address, request in step.requests.items()]
        return dict(zip(step.requests, await asyncio.gather(*asked), strict=True))

    async def _answer_of(self, address: Address, request: Request[R]) -> R | NoAnswer:
        try:
            return await self.ask_at(address, request, timeout_ms=_timeout_ms(request))
        except NoAnswer as error:
            return error

    async def ask(self, request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> R:
        """Ask any broker that answers. Raises NoAnswer with the reasons of all, or with a permanent one."""
        reasons: list[NoAnswer] = []
        known = dict.fromkeys((*self._settings.bootstrap, *self.cluster.brokers.values()))
        # Open connections first, so that a broker that is down costs no time.
        for address in sorted(known, key=lambda address: not self._is_open(address)):
            try:
                response = await self.ask_at(address, request, timeout_ms=timeout_ms)
            except NoAnswer as error:
                reasons.append(error)
            else:
                self.cluster.learn(response)
                return response
        raise all_failed(reasons)

    async def ask_at(self, address: Address, request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> R:
        """Ask one broker. Raises NoAnswer."""
        peer = self._peers.get(address)
        if peer is None:
            settings = self._settings
            peer = self._peers[address] = Peer(
                lambda: address,
                settings.client_id,
                ANSWER_TIMEOUT_MS,
                self._connect,
                _spawn,
                settings.credentials,
                VERSIONS_MAX,
            )
        response = await peer.send(request, timeout_ms=timeout_ms)
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until = max(self.throttled_until, time.monotonic() + throttle_ms / 1_000)
        return response

    async def ask_each(
        self, addresses: Iterable[Address], request: Request[R], *, timeout_ms: int = ANSWER_TIMEOUT_MS
    ) -> dict[Address, R]:
        """The responses of several brokers; those that do not answer are left out."""
        wanted = list(addresses)
        answers = await asyncio.gather(
            *(self.ask_at(address, request, timeout_ms=timeout_ms) for address in wanted), return_exceptions=True
        )
        found: dict[Address, R] = {}
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


def _timeout_ms(request: object) -> int:
    """How long a response may take: some requests say how long the broker may wait."""
    return ANSWER_TIMEOUT_MS + int(getattr(request, "timeout_ms", 0))


def _spawn(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
    # The peer holds the task, and its errors reach those who wait for responses.
    return asyncio.get_running_loop().create_task(work, name=name)
