"""`/console/session`: signing in to the console, and out again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import Response

from penstock.gateway.callers.console_sessions import (
    ConsoleSession,
    ConsoleSessions,
    check_token,
    cookie_of,
    set_cookie,
)
from penstock.gateway.callers.credentials import BASIC, CERTIFICATE, SECRET_LENGTH_MAX, Presented, is_user
from penstock.gateway.callers.session import CallerSession
from penstock.gateway.web.application import json_response
from penstock.gateway.web.connection_policy import CERTIFICATE_KEY
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Routes, closed_object
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import address_of
from penstock.model.access import USER_PREFIX

TAG = "Console"
PATH = "/console/session"
SIGN_IN_BODY = closed_object(
    ["username", "password"],
    username={"type": "string", "minLength": 1, "maxLength": 255},
    password={"type": "string", "maxLength": SECRET_LENGTH_MAX},
)
NO_STORE = {"Cache-Control": "no-store"}

Verify = Callable[[Presented, str], Awaitable[CallerSession]]


@dataclass(frozen=True, slots=True)
class ConsoleSignIn:
    """How users sign in to the console. Without `verify`, the console needs no sign-in."""

    verify: Verify | None
    sessions: ConsoleSessions
    methods: Collection[str] = ()


class SignInServices(Protocol):
    """What the operations on the caller's own session use."""

    @property
    def sign_in(self) -> ConsoleSignIn:
        """How users sign in."""
        ...


routes: Routes[SignInServices] = Routes(TAG, PATH)


@routes.on("GET", "Show the user that is signed in to the console.")
async def show(services: SignInServices, call: Call) -> Response:
    sessions, methods = services.sign_in.sessions, services.sign_in.methods
    if services.sign_in.verify is None:
        return json_response({"required": False}, headers=NO_STORE)
    name = _name_of(call)
    session = sessions.find(name, time.monotonic()) if name is not None else None
    if session is not None:
        return _shown(session, NO_STORE)
    certificate = call.request.scope.get(CERTIFICATE_KEY)
    if certificate is None or CERTIFICATE not in methods:
        return json_response({"required": True, "user": None}, headers=NO_STORE)
    # A user with a browser certificate need not type anything, but has a session token like all others.
    name, session = sessions.create(Presented(CERTIFICATE, certificate), certificate, time.monotonic())
    return _shown(session, {**NO_STORE, "Set-Cookie": set_cookie(name, tls=_is_tls(call))})


@routes.on("POST", "Sign in to the console.", body=Body(SIGN_IN_BODY))
async def create(services: SignInServices, call: Call) -> Response:
    verify, sessions = services.sign_in.verify, services.sign_in.sessions
    if verify is None or BASIC not in services.sign_in.methods:
        raise Problem(40411, "this gateway has no sign-in with a password", "use a certificate instead")
    user, password = call.body["username"], call.body["password"]
    if not is_user(user) or "\0" in password:
        raise Problem(40001, "this is not a valid user and password", "correct them")
    presented = Presented(BASIC, user, password)
    try:
        caller = await verify(presented, address_of(call.request.scope))
    except Problem as problem:
        if problem.status != 401:
            raise
        raise Problem(problem.code, "wrong user or password", "try again") from None
    old = _name_of(call)
    if old is not None:
        sessions.drop(old)
    name, session = sessions.create(presented, caller.principal, time.monotonic())
    return _shown(session, {**NO_STORE, "Set-Cookie": set_cookie(name, tls=_is_tls(call))})


@routes.on("DELETE", "Sign out of the console.", answers=NO_CONTENT)
async def end(services: SignInServices, call: Call) -> Response:
    sessions, name = services.sign_in.sessions, _name_of(call)
    session = sessions.find(name, time.monotonic()) if name is not None else None
    if session is not None and name is not None:
        check_token(session, "DELETE", dict(call.request.scope["headers"]))
        sessions.drop(name)
    return Response(status_code=204, headers={**NO_STORE, "Set-Cookie": set_cookie(None, tls=_is_tls(call))})


def _shown(session: ConsoleSession, headers: Mapping[str, str]) -> Response:
    user = session.presented.name.removeprefix(USER_PREFIX)
    return json_response({"required": True, "user": user, "token": session.token}, headers=headers)


def _is_tls(call: Call) -> bool:
    return call.request.url.scheme == "https"


def _name_of(call: Call) -> str | None:
    return cookie_of(dict(call.request.scope["headers"]), tls=_is_tls(call))
