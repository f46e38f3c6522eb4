"""The applications of a gateway's ports, its fast path, and the clients that read detailed metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Scope

from penstock.gateway.callers.authentication import (
    Authenticator,
    PortApp,
    SharedSessionAuthenticator,
    SignInAuthenticator,
)
from penstock.gateway.callers.callers import Accepted, Callers
from penstock.gateway.callers.console_sessions import ConsoleSessions
from penstock.gateway.callers.credentials import Presented, presented
from penstock.gateway.callers.rates import CallerRates
from penstock.gateway.callers.session import CallerSession
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.registry.api.application import public_registry, registry_application, registry_error
from penstock.gateway.rest.application import public_application, rest_application
from penstock.gateway.rest.console.sign_in import ConsoleSignIn
from penstock.gateway.rest.native.hot_publish import FindPublisher, PublisherOf
from penstock.gateway.rest.services import RestServices
from penstock.gateway.roles import INGRESS
from penstock.gateway.services import SharedParts
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.application import plain_error
from penstock.gateway.web.hot_path import Head
from penstock.gateway.web.problem import Problem


@dataclass(frozen=True, slots=True)
class GatewayApps:
    """The applications of the two ports, and what the gateway needs of their callers."""

    rest: ASGIApp
    registry: ASGIApp
    publisher_of: PublisherOf
    details_for: Callable[[Scope], Awaitable[Groups]]
    end_streams: Callable[[], None]
    callers_count: Callable[[], int]


def shared_session_apps(parts: SharedParts, own: CallerSession, services: RestServices) -> GatewayApps:
    """The applications without sign-in: all requests act as the gateway's user."""

    def publisher() -> Publisher | None:
        return services.publisher

    sign_in = ConsoleSignIn(None, ConsoleSessions(1, 1, 1))
    return _make_apps(
        parts, services, SharedSessionAuthenticator(own), sign_in, lambda _: publisher, services.tails.end, lambda: 1
    )


def sign_in_apps(parts: SharedParts, own: CallerSession, services: RestServices, callers: Callers) -> GatewayApps:
    """The applications with sign-in: each caller acts as itself."""
    settings = parts.settings
    sessions = ConsoleSessions(settings.console_sessions_max, settings.console_idle_s, settings.console_session_s)
    authenticator = SignInAuthenticator(callers, sessions, settings.sign_in_methods)

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

    return _make_apps(
        parts,
        services,
        authenticator,
        ConsoleSignIn(callers.sign_in, sessions, settings.sign_in_methods),
        publisher_of,
        end_streams,
        callers.__len__,
    )


class _CallersPublisher:
    """Finds the publisher of a caller that signed in a moment ago; other requests take the regular path."""

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


def _make_apps(
    parts: SharedParts,
    services: RestServices,
    authenticator: Authenticator,
    sign_in: ConsoleSignIn,
    publisher_of: PublisherOf,
    end_streams: Callable[[], None],
    callers_count: Callable[[], int],
) -> GatewayApps:
    settings = parts.settings
    rates = CallerRates(settings.caller_requests_per_s_max, settings.caller_bytes_per_s_max)

    async def details_for(scope: Scope) -> Groups:
        found = await (await authenticator.session(scope)).open()
        return found.groups

    limits, rest_load, registry_load = settings.limits, parts.rest_load, parts.registry_load
    return GatewayApps(
        rest=PortApp(
            authenticator,
            rest_application(settings, parts.bodies, rest_load),
            CallerSession.open,
            public_application(settings, parts.bodies, rest_load, services.admin, sign_in),
            rates,
            plain_error,
        ),
        registry=PortApp(
            authenticator,
            registry_application(limits, parts.registry_bodies.read, load=registry_load, roles=settings.roles),
            CallerSession.registry,
            public_registry(limits),
            rates,
            registry_error,
        ),
        publisher_of=publisher_of if _may_use_hot_path(settings, rates) else lambda _: None,
        details_for=details_for,
        end_streams=end_streams,
        callers_count=callers_count,
    )


def _may_use_hot_path(settings: GatewaySettings, rates: CallerRates) -> bool:
    """Whether the fast path may be used: it does not count requests and bytes against rates."""
    return INGRESS in settings.roles and not rates.are_limited
