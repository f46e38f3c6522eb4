"""Tokens of an identity provider, for clients that sign in with OAUTHBEARER: from its token endpoint, or from a file.

A token is kept until most of its lifetime is over and shared by all connections of the process. An event loop fetches
tokens in a thread (`peer`), and its sign-in is given the token itself.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from penstock.client.failures import AuthenticationFailed

RENEWAL_SHARE = 0.8
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 1 << 20
_SCHEMES = ("https", "http", "file")


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where tokens come from: by OAuth's client credentials (RFC 6749, 4.4), or from a file if the URL is one."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    ca_location: str | None = None

    def __post_init__(self) -> None:
        scheme = urlsplit(self.url).scheme
        if scheme not in _SCHEMES:
            raise ValueError(f"sasl.oauthbearer.token.endpoint.url is {self.url!r}: use https://, http:// or file://")
        if not self.is_file and not (self.client_id and self.client_secret):
            raise ValueError(
                "OAUTHBEARER needs a client: set sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
            )

    @property
    def is_file(self) -> bool:
        """Whether something else keeps a token in a file."""
        return self.url.startswith("file:")


_kept: dict[TokenEndpoint, tuple[str, float]] = {}
# Each endpoint has its own, so that one that does not answer delays nothing else.
_fetching: dict[TokenEndpoint, threading.Lock] = {}


def bearer_token(endpoint: TokenEndpoint) -> str:
    """A token that is still good for a while; blocks while a new one is fetched. Raises AuthenticationFailed."""
    with _fetching.setdefault(endpoint, threading.Lock()):
        token, renew_at = _kept.get(endpoint, ("", 0.0))
        if time.time() >= renew_at:
            token, lifetime_s = _fetch(endpoint)
            _kept[endpoint] = (token, time.time() + lifetime_s * RENEWAL_SHARE)
        return token


def expiry_of(token: str) -> float | None:
    """When a JWT expires, in seconds since 1970, by its own account; None if it does not say so."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None


def _fetch(endpoint: TokenEndpoint) -> tuple[str, float]:
    # Few clients need an HTTP client, and commands start sooner without one.
    import http.client
    import urllib.error
    import urllib.request

    request: Any = endpoint.url
    if not endpoint.is_file:
        form = {"grant_type": "client_credentials", **({"scope": endpoint.scope} if endpoint.scope else {})}
        basic = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
        request = urllib.request.Request(
            endpoint.url,
            urlencode(form).encode(),
            {"Authorization": f"Basic {basic}", "Accept": "application/json"},
        )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=_tls(endpoint)) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        said = error.read(200).decode(errors="replace").strip()
        raise AuthenticationFailed(f"{endpoint.url} gave no token: {error.code} {error.reason} {said}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise AuthenticationFailed(f"cannot get a token from {endpoint.url}: {reason}") from None
    if endpoint.is_file:
        # It may be replaced at any time; reading it is cheap.
        return body.decode(errors="replace").strip(), 0.0
    try:
        document = json.loads(body)
        token = str(document["access_token"])
        lifetime_s = document.get("expires_in")
        if lifetime_s is None:
            lifetime_s = max(0.0, (expiry_of(token) or 0.0) - time.time())
        return token, float(lifetime_s)
    except (KeyError, TypeError, ValueError):
        raise AuthenticationFailed(f"{endpoint.url} answered without an access_token") from None


def _tls(endpoint: TokenEndpoint) -> Any:
    if not endpoint.url.startswith("https:") or endpoint.ca_location is None:
        return None
    import ssl

    return ssl.create_default_context(cafile=endpoint.ca_location)
