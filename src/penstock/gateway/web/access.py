"""Which web pages may call: the gateway's own, and those of origins that the operator allows.

A browser lets any page send requests to any address, with headers that contain the page's origin. Without this
check every page that a user opens could write to a gateway on the same machine or network. What is checked:

- `Host`: a page can make its own name resolve to the gateway's address (DNS rebinding), and then has the same origin as
  far as the browser knows. So the name must be a known one. IP addresses are fine: they are not resolved.
- `Origin`, which browsers send with every request that could have an effect and with every WebSocket: it must be that
  of the gateway itself, or an allowed one.
- `Sec-Fetch-Site`, for requests without an Origin (images, scripts, frames, links): from another site only pages may be
  opened, because some GETs consume records of a group.

Programs other than browsers send none of these but `Host`, and are not affected.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.gateway.web.application import plain_error
from penstock.gateway.web.problem import Problem

HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z._~-]+)(?::(\d{0,5}))?")
DEFAULT_PORTS = {"http": "80", "https": "443"}
LOCAL = "localhost"
OWN_SITES = (b"none", b"same-origin")
# Pages that may be linked to from anywhere: they show the same to everyone and change nothing.
PAGES = re.compile(r"/|/console(/.*)?|/docs")
# Types that pages may send to any site without a preflight request. A missing type counts as well.
FORM_TYPES = ("", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SHOWN_HEADERS = ("Retry-After", "Idempotent-Replayed")
KNOWN_HOSTS_MAX = 1000
KNOWN_HOST_BYTES_MAX = 255
SHOWN_MAX = 100

Headers = Iterable[tuple[bytes, bytes]]


class Access:
    """The host names that a gateway answers to, and the origins whose pages may call it.

    A name in `hosts` that starts with a dot stands for all names below it. `origins` are written as browsers send them:
    `https://console.example`.
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        names = {name.lower().rstrip(".") for name in hosts if name}
        self._names = {name for name in names if not name.startswith(".")} | {LOCAL}
        self._suffixes = (f".{LOCAL}", *(name for name in names if name.startswith(".")))
        self.origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        # Host headers that were accepted before, verbatim: most callers send the same one over and over.
        self._known: set[bytes] = set()

    def is_plain(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request has a known host and no browser-only headers, so that nothing else needs checking."""
        return b"origin" not in headers and b"sec-fetch-site" not in headers and self.knows(headers.get(b"host", b""))

    def refusal(self, scope: Scope) -> Problem | None:
        """Why a request or a WebSocket is refused; None if it is allowed."""
        found: dict[bytes, bytes] = {}
        hosts = 0
        for name, value in scope["headers"]:
            found[name] = value
            hosts += name == b"host"
        problem = self._host_refusal(hosts, found.get(b"host"), scope["http_version"])
        if problem is not None:
            return problem
        origin = found.get(b"origin")
        if origin is None:
            return _site_refusal(scope, found)
        return self._origin_refusal(origin, found) or _form_refusal(scope, found)

    def knows(self, host: bytes) -> bool:
        """Whether a Host header names this gateway."""
        if host in self._known:
            return True
        found = HOST.fullmatch(host)
        if found is None or not self._is_name(found[1].decode().lower()):
            return False
        if len(self._known) < KNOWN_HOSTS_MAX and len(host) <= KNOWN_HOST_BYTES_MAX:
            self._known.add(host)
        return True

    def _is_name(self, name: str) -> bool:
        if _is_address(name.strip("[]")):
            return True
        name = name.rstrip(".")
        return name in self._names or name.endswith(self._suffixes)

    def _host_refusal(self, count: int, host: bytes | None, version: str) -> Problem | None:
        if count > 1:
            return Problem(40000, "the request has more than one Host header", "send one")
        if host is None:
            # Before HTTP/1.1 there was no such header, and no browser is that old.
            return None if version == "1.0" else Problem(40000, "the request has no Host header", "send one")
        if self.knows(host):
            return None
        if HOST.fullmatch(host) is None:
            return Problem(40000, f"{_shown(host)!r} is not a valid Host header", "send a name, or a name and a port")
        name = _shown(host).partition(":")[0]
        return Problem(
            42101,
            f"this gateway is not known by the name {name}: a web page could have made that name resolve to it",
            f"use the gateway's address, or start it with --allow-host {name} (or PENSTOCK_ALLOW_HOST={name})",
        )

    def _origin_refusal(self, origin: bytes, headers: Mapping[bytes, bytes]) -> Problem | None:
        text = origin.decode("latin-1").lower()
        if text in self.origins or _authority(text) == _own_authority(text, headers.get(b"host", b"")):
            return None
        shown = _shown(origin)
        return Problem(
            40301,
            f"pages of {shown} may not call this gateway",
            f"if they should, start it with --allow-origin {shown} (or PENSTOCK_ALLOW_ORIGIN={shown})",
        )


def _site_refusal(scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
    """Requests that browsers send without an Origin: from other sites, only page navigation is allowed."""
    site = headers.get(b"sec-fetch-site", b"none")
    if site in OWN_SITES:
        return None
    opens_page = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    if opens_page and scope.get("method") in ("GET", "HEAD") and PAGES.fullmatch(scope["path"]):
        return None
    return Problem(
        40302,
        "pages of other sites may not call this gateway",
        "call it from its own console, or from a program; --allow-origin lets a page call it with fetch",
    )


def _form_refusal(scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
    """A body of a type that any page may send. Programs may send it (`curl -d` does); they send no Origin."""
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if scope["type"] != "http" or not has_body or kind not in FORM_TYPES:
        return None
    return Problem(41501, f"a page may not send a body of type {kind or 'none'}", "send application/json")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _authority(origin: str) -> str | None:
    """The host of an origin, without a port that its scheme implies; None for `null` and invalid origins."""
    scheme, _, host = origin.partition("://")
    return host.removesuffix(f":{DEFAULT_PORTS.get(scheme, '')}") if scheme in DEFAULT_PORTS and host else None


def _own_authority(origin: str, host: bytes) -> str:
    """The request's host in the form of an origin with that scheme. Any scheme: a load balancer may terminate TLS."""
    scheme = origin.partition("://")[0]
    return host.decode("latin-1").lower().removesuffix(f":{DEFAULT_PORTS.get(scheme, '')}")


def _shown(value: bytes) -> str:
    return value.decode("latin-1")[:SHOWN_MAX]


def is_origin(text: str) -> bool:
    """Whether a text is an origin in the form that browsers send."""
    parts = urlsplit(text)
    return parts.scheme in DEFAULT_PORTS and bool(parts.hostname) and text == f"{parts.scheme}://{parts.netloc}"


class AccessGuard:
    """An application that only serves allowed requests. `refused` is called with the status of every refusal."""

    def __init__(self, application: ASGIApp, access: Access, refused: Callable[[int], None] = lambda _: None) -> None:
        self._access = access
        self._refused = refused
        self._application = application
        if access.origins:
            self._application = CORSMiddleware(
                application,
                allow_origins=sorted(access.origins),
                allow_methods=METHODS,
                allow_headers=["*"],
                expose_headers=SHOWN_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        problem = self._access.refusal(scope) if scope["type"] in ("http", "websocket") else None
        if problem is None:
            await self._application(scope, receive, send)
            return
        self._refused(problem.status)
        await plain_error(problem)(scope, receive, send)
