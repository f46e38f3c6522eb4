"""The credentials that callers present: HTTP Basic, a bearer token, or a client certificate.

Nothing else identifies a caller. Headers such as `X-Forwarded-User`, which proxies of other systems set, are never
read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from penstock.gateway.web.problem import Problem

BASIC, BEARER, CERTIFICATE = "basic", "bearer", "certificate"
METHODS = (BASIC, BEARER, CERTIFICATE)
REALM = "penstock"
NAME_LENGTH_MAX = 255
SECRET_LENGTH_MAX = 16 * 1024
NOT_SIGNED_IN = 40101
# A key of this process: digests of secrets are useless elsewhere, and lookups by them leak nothing by their time.
_KEY = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Presented:
    """Credentials in a request, not verified yet. `name` is the user, or the principal of a certificate."""

    method: str
    name: str
    secret: str = field(default="", repr=False)

    @property
    def digest(self) -> bytes:
        """A digest that is equal for equal credentials, and useless outside this process."""
        parts = (self.method, self.name, self.secret)
        return hmac.digest(_KEY, b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts), "sha256")


def presented(
    headers: Iterable[tuple[bytes, bytes]], certificate: str | None, methods: Collection[str]
) -> Presented | None:
    """The credentials in a request; None without any. An Authorization header takes precedence over a certificate."""
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        raise Problem(40000, "the request has more than one Authorization header", "send one")
    if found:
        return _read(found[0], methods)
    if certificate is not None and CERTIFICATE in methods:
        return Presented(CERTIFICATE, certificate)
    return None


def not_signed_in(message: str, methods: Collection[str], *, to_browser: bool = False) -> Problem:
    """401 with a challenge. Pages get one that browsers don't answer with a dialog of their own."""
    fix = {BASIC: "a user and password (HTTP Basic)", BEARER: "a bearer token", CERTIFICATE: "a client certificate"}
    offered = ", or ".join(fix[method] for method in METHODS if method in methods)
    challenges = [f'Bearer realm="{REALM}"'] if BEARER in methods else []
    if to_browser:
        challenges = [f'Session realm="{REALM}"']
    elif BASIC in methods:
        challenges.insert(0, f'Basic realm="{REALM}", charset="UTF-8"')
    headers = {"WWW-Authenticate": ", ".join(challenges)} if challenges else {}
    return Problem(NOT_SIGNED_IN, message, f"send {offered}", headers=headers)


def _read(value: bytes, methods: Collection[str]) -> Presented:
    scheme, _, rest = value.decode("latin-1").strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == BASIC and BASIC in methods:
        return _basic(rest, methods)
    if scheme.lower() == BEARER and BEARER in methods:
        if not rest or len(rest) > SECRET_LENGTH_MAX or not rest.isascii() or " " in rest:
            raise not_signed_in("this is not a bearer token", methods)
        return Presented(BEARER, "", rest)
    raise not_signed_in("this gateway does not accept this kind of Authorization header", methods)


def _basic(encoded: str, methods: Collection[str]) -> Presented:
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        name, colon, password = "", "", ""
    if not colon or not is_user(name) or "\0" in password or len(password) > SECRET_LENGTH_MAX:
        raise not_signed_in("this is not a user and a password in the form of HTTP Basic", methods)
    return Presented(BASIC, name, password)


def is_user(name: str) -> bool:
    """Whether a text could be a user's name."""
    return 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The claims in a token. Only brokers check its signature, so none of them is trusted before they did."""

    issuer: str
    subject: str
    # Seconds since 1970; 0 if the token has no such claim.
    expires_s: float


def token_claims(token: str) -> TokenClaims | None:
    """The claims of a JWT; None for anything else."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        body = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    subject, issuer, expires = body.get("sub"), body.get("iss", ""), body.get("exp", 0)
    if not isinstance(subject, str) or not subject or isinstance(expires, bool) or not isinstance(expires, int | float):
        return None
    return TokenClaims(str(issuer), subject, float(expires))


def fingerprint(*parts: str) -> str:
    """A short name for something that must not be shown."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
