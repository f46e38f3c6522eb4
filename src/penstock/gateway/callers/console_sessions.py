"""Sessions of the console: their cookies, their lifetimes, and the token that every change must carry."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field

from penstock.core.fairness import FairCache
from penstock.gateway.callers.credentials import Presented
from penstock.gateway.web.problem import Problem

ID_BYTES = 32
# Browsers accept this prefix only from TLS and for the whole host, so no other page can set such a cookie.
SECURE_COOKIE, PLAIN_COOKIE = "__Host-penstock", "penstock-session"
TOKEN_HEADER = b"x-csrf-token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
NO_TOKEN = 40303
# The standard library's parser builds an object for each cookie, and unquotes in quadratic time: a header of a client
# that has not signed in would take a sixth of a second.
_COOKIES = {
    name: re.compile(rb"(?:^|;)[ \t]*" + name.encode() + rb"=([A-Za-z0-9_-]{1,128})[ \t]*(?:;|$)")
    for name in (SECURE_COOKIE, PLAIN_COOKIE)
}
_KEY = secrets.token_bytes(32)


@dataclass(slots=True)
class ConsoleSession:
    """A user's sign-in to the console."""

    presented: Presented
    token: str = field(repr=False)
    created_at: float
    used_at: float


class ConsoleSessions:
    """All sessions by their ids, which are random and kept as digests. Time is an argument.

    A principal that signs in over and over again, by whichever of its credentials, evicts its own sessions only.
    """

    def __init__(self, sessions_max: int, idle_s: float, lifetime_s: float) -> None:
        self._idle_s = idle_s
        self._lifetime_s = lifetime_s
        self._sessions: FairCache[str, bytes, ConsoleSession] = FairCache(sessions_max)

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, presented: Presented, principal: str, now: float) -> tuple[str, ConsoleSession]:
        """A principal's new session, with a new random id: one that a browser sent is never adopted (fixation)."""
        name = secrets.token_urlsafe(ID_BYTES)
        session = ConsoleSession(presented, secrets.token_urlsafe(ID_BYTES), now, now)
        self._sessions.put(principal, _digest(name), session)
        return name, session

    def find(self, name: str, now: float) -> ConsoleSession | None:
        """The session of an id; None if there is none, or it has expired."""
        digest = _digest(name)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if now - session.used_at > self._idle_s or now - session.created_at > self._lifetime_s:
            self._sessions.pop(digest)
            return None
        session.used_at = now
        return session

    def drop(self, name: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(name))


def check_token(session: ConsoleSession, method: str, headers: dict[bytes, bytes]) -> None:
    """403 if a request that may change something lacks the session's token, which other sites' pages cannot know."""
    if not hmac.compare_digest(headers.get(TOKEN_HEADER, b""), session.token.encode()):
        check_no_change(method)


def check_no_change(method: str) -> None:
    """403 if a request without a session's token may change something."""
    if method not in SAFE_METHODS:
        raise Problem(NO_TOKEN, "the request lacks the session's X-CSRF-Token", "reload the console and try again")


def cookie_of(headers: dict[bytes, bytes], *, tls: bool) -> str | None:
    """The session's id in a request's cookies."""
    found = _COOKIES[SECURE_COOKIE if tls else PLAIN_COOKIE].search(headers.get(b"cookie", b""))
    return found[1].decode() if found is not None else None


def set_cookie(name: str | None, *, tls: bool) -> str:
    """The Set-Cookie header that starts a session, or without a name ends it."""
    parts = [f"{SECURE_COOKIE if tls else PLAIN_COOKIE}={name or ''}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if tls:
        parts.append("Secure")
    if name is None:
        parts.append("Max-Age=0")
    return "; ".join(parts)


def _digest(name: str) -> bytes:
    return hmac.digest(_KEY, name.encode("utf-8", "surrogatepass"), "sha256")
