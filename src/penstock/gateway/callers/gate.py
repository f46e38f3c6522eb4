"""How a gateway serves: the applications of its ports, the fast path, and who asks for detailed metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Scope

from penstock.gateway.callers.callers import Accepted, Callers
from penstock.gateway.callers.console_sessions import ConsoleSessions
from penstock.gateway.callers.credentials import Presented, presented
from penstock.gateway.callers.door import Door, OpenDoor, Served, SignInDoor
from penstock.gateway.callers.rates import CallerRates
from penstock.gateway.callers.session import CallerSession
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.registry.api.application import public_registry, registry_error
from penstock.gateway.rest.application import public_application
from penstock.gateway.rest.console.sign_in import SignIn, sign_in_operations
from penstock.gateway.rest.native.hot_publish import FindPublisher, PublisherOf
from penstock.gateway.rest.services import RestServices
from penstock.gateway.roles import INGRESS
from penstock.gateway.services import SharedParts
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.application import plain_error
from penstock.gateway.web.hot_path import Head
from penstock.gateway.web.problem import Problem


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gateway's ports need."""

    rest: ASGIApp
    registry: ASGIApp
    publisher_of: PublisherOf
    details_for: Callable[[Scope], Awaitable[tuple[Admin, Groups]]]
    end_streams: Callable[[], None]
    callers_count: Callable[[], int]


def open_gate(parts: SharedParts, own: CallerSession, services: RestServices) -> Gate:
    """A gateway where nobody signs in, and everybody acts as the gateway."""

    def publisher() -> Publisher | None:
        return services.publisher

    return _gate(parts, services, OpenDoor(own), None, lambda _: publisher, services.tails.end, lambda: 1)


def sign_in_gate(parts: SharedParts, own: CallerSession, services: RestServices, callers: Callers) -> Gate:
    """A gateway where everybody signs in, and acts as itself."""
    settings = parts.settings
    sessions = ConsoleSessions(settings.console_sessions_max, settings.console_idle_s, settings.console_session_s)
    door = SignInDoor(callers, sessions, settings.sign_in_methods)

    def end_streams() -> None:
        own.end()
        for session in callers.sessions:
            session.end()

    def publisher_of(head: Head) -> FindPublisher | None:
        authorization = head.headers.get(b"authorization")
        if authorization is None:
            return None
        try:
            found = presented([(b"authorization", authorization)], None, settings.sign_in_methods)
        except Problem:
            return None
        return None if found is None else _CallersPublisher(callers, found).find

    return _gate(
        parts,
        services,
        door,
        (callers.sign_in, sessions),
        publisher_of,
        end_streams,
        callers.__len__,
    )


class _CallersPublisher:
    """Finds the publisher of a caller that signed in a moment ago; all else is left to the regular path."""

    __slots__ = ("_accepted", "_callers", "_found")

    def __init__(self, callers: Callers, found: Presented) -> None:
        self._callers = callers
        self._found = found
        self._accepted: Accepted | None = None

    def find(self) -> Publisher | None:
        accepted = self._accepted
        if accepted is None or not accepted.is_valid():
            accepted = self._accepted = self._callers.known(self._found)
        if accepted is None:
            return None
        session = accepted.session
        if session.is_throttled or session.services is None:
            return None
        session.used_at = time.monotonic()
        return session.services.publisher


def _gate(
    parts: SharedParts,
    services: RestServices,
    door: Door,
    console: tuple[SignIn, ConsoleSessions] | None,
    publisher_of: PublisherOf,
    end_streams: Callable[[], None],
    callers_count: Callable[[], int],
) -> Gate:
    settings = parts.settings
    rates = CallerRates(settings.caller_requests_per_s_max, settings.caller_bytes_per_s_max)
    ask, sessions = console or (None, ConsoleSessions(1, 1, 1))
    sign_in = sign_in_operations(ask, sessions, settings.sign_in_methods)

    async def details_for(scope: Scope) -> tuple[Admin, Groups]:
        found = await (await door.session(scope)).open()
        return found.admin, found.groups

    return Gate(
        rest=Served(door, CallerSession.rest, public_application(services, sign_in), rates, plain_error),
        registry=Served(
            door,
            CallerSession.registry,
            public_registry(parts.registry, parts.cluster_id, settings),
            rates,
            registry_error,
        ),
        publisher_of=publisher_of if _may_be_hot(settings, rates) else lambda _: None,
        details_for=details_for,
        end_streams=end_streams,
        callers_count=callers_count,
    )


def _may_be_hot(settings: GatewaySettings, rates: CallerRates) -> bool:
    """The fast path does not count what callers send."""
    return INGRESS in settings.roles and not rates.are_limited
