"""Authenticates the requests of a port, and serves each with its caller's services.

Without sign-in all requests have the same services. With it, each has those of the caller that signed in. Public
resources (the documentation, the console's files, health) are an application of their own, which has nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.gateway.callers.callers import Callers
from penstock.gateway.callers.console_sessions import ConsoleSessions, check_no_change, check_token, cookie_of
from penstock.gateway.callers.credentials import (
    BEARER,
    CERTIFICATE,
    NOT_SIGNED_IN,
    Presented,
    not_signed_in,
    presented,
)
from penstock.gateway.callers.rates import CallerRates
from penstock.gateway.callers.session import CallerSession
from penstock.gateway.web.application import Application, BoundApplication, raw_path
from penstock.gateway.web.connection_policy import CERTIFICATE_KEY
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import CALLER, PRINCIPAL, address_of, caller_of

# Headers that only browsers send.
BROWSERS = frozenset((b"origin", b"sec-fetch-site"))
# The key in a scope for the time, in seconds since 1970, at which the caller's token expires.
EXPIRES = "penstock.expires"
EXPIRED = "the token has expired"
POLICY_VIOLATION = 1008

Render = Callable[[Problem], Response]
Services = TypeVar("Services")


class Authenticator(Protocol):
    """Finds the session of a request's caller."""

    async def session(self, scope: Scope) -> CallerSession:
        """The session; raises Problem if the request must not be served."""
        ...


class SharedSessionAuthenticator:
    """Without sign-in: one session for all requests."""

    def __init__(self, session: CallerSession) -> None:
        self._session = session

    async def session(self, scope: Scope) -> CallerSession:
        """The only session."""
        del scope
        return self._session


class SignInAuthenticator:
    """With sign-in: credentials in each request or, in the console, a session."""

    def __init__(self, callers: Callers, sessions: ConsoleSessions, methods: tuple[str, ...]) -> None:
        self._callers = callers
        self._sessions = sessions
        self._methods = methods

    async def session(self, scope: Scope) -> CallerSession:
        """The caller's session; 401 without credentials, or with wrong ones."""
        headers = dict(scope["headers"])
        in_browser = b"sec-fetch-mode" in headers and headers[b"sec-fetch-mode"] != b"navigate"
        name = cookie_of(headers, tls=scope["scheme"] in ("https", "wss"))
        found = presented(scope["headers"], scope.get(CERTIFICATE_KEY), self._methods)
        if name is not None and (found is None or found.method == CERTIFICATE):
            session = self._sessions.find(name, time.monotonic())
            if session is not None:
                check_token(session, scope.get("method", "GET"), headers)
                return await self._signed_in(session.presented, scope, name)
        if found is not None and found.method == CERTIFICATE and BROWSERS & headers.keys():
            # Browsers send their certificate to any server that requests one, whichever page caused the request.
            check_no_change(scope.get("method", "GET"))
        if found is None:
            to_browser = in_browser or name is not None
            raise not_signed_in("this requires a sign-in", self._methods, to_browser=to_browser)
        return await self._signed_in(found, scope, None)

    async def _signed_in(self, found: Presented, scope: Scope, name: str | None) -> CallerSession:
        try:
            session = await self._callers.sign_in(found, address_of(scope))
            if found.method == BEARER:
                accepted = self._callers.known(found)
                scope[EXPIRES] = 0.0 if accepted is None else accepted.expires_s
            return session
        except Problem as problem:
            if problem.status != 401 or name is None:
                raise
            self._sessions.drop(name)
            raise not_signed_in("your sign-in is no longer valid", self._methods, to_browser=True) from None


class PortApp(Generic[Services]):
    """The ASGI application of one port."""

    def __init__(
        self,
        authenticator: Authenticator,
        application: Application[Services],
        services_of: Callable[[CallerSession], Awaitable[Services]],
        public: BoundApplication | None,
        rates: CallerRates,
        render: Render,
    ) -> None:
        """`services_of` opens a caller's services on this port; `public` serves the resources without sign-in."""
        self._authenticator = authenticator
        self._application = application
        self._services_of = services_of
        self._public = public
        self._rates = rates
        self._render = render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] not in ("http", "websocket"):
            return
        CALLER.set(address_of(scope))
        public = self._public
        if public is not None and scope["type"] == "http" and public.serves(scope["method"], raw_path(scope)):
            await public.serve(scope, receive, send)
            return
        try:
            session = await self._authenticator.session(scope)
            if session.principal:
                scope[PRINCIPAL] = session.principal
                CALLER.set(session.principal)
                send = _uncached(send)
            if self._rates.are_limited:
                self._rates.take(caller_of(scope), time.monotonic())
                receive, send = self._metered(scope, receive, send)
            wait_s = session.wait_s()
            if wait_s:
                await asyncio.sleep(wait_s)
            serve = partial(self._application.serve, await self._services_of(session))
        except Problem as problem:
            await self._render(problem)(scope, receive, send)
            return
        with session.in_use():
            expires_s = scope.get(EXPIRES)
            if expires_s is None or scope.get("method", "GET") != "GET":
                await serve(scope, receive, send)
            else:
                await self._until(expires_s - time.time(), serve, scope, receive, send)

    async def _until(self, left_s: float, serve: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may be a stream, at most until its token expires."""
        is_started = is_complete = False

        async def noted(message: Message) -> None:
            nonlocal is_started, is_complete
            is_started = True
            is_complete = message["type"] == "websocket.close" or (
                message["type"] == "http.response.body" and not message.get("more_body")
            )
            await send(message)

        try:
            async with asyncio.timeout(left_s) as deadline:
                await serve(scope, receive, noted)
        except TimeoutError:
            if not deadline.expired():
                raise
        if is_complete or not deadline.expired():
            return
        with contextlib.suppress(RuntimeError, OSError):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": EXPIRED})
            elif is_started:
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._render(Problem(NOT_SIGNED_IN, EXPIRED, "sign in again"))(scope, receive, send)

    def _metered(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        caller, rates = caller_of(scope), self._rates

        async def metered_receive() -> Message:
            message = await receive()
            size = len(message.get("body") or b"")
            if size:
                rates.spend(caller, size, time.monotonic())
            return message

        async def metered_send(message: Message) -> None:
            size = len(message.get("body") or message.get("text") or b"")
            if size:
                rates.spend(caller, size, time.monotonic())
            await send(message)

        return metered_receive, metered_send


def _uncached(send: Send) -> Send:
    """Forbid proxies and browsers to cache responses: another caller may not be allowed to see them."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.setdefault("headers", [])
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                message["headers"] = [*headers, (b"cache-control", b"no-store")]
        await send(message)

    return sent
