"""The ASGI application of an API: routes requests, validates them, returns errors as JSON, and enforces limits."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from penstock.gateway.web.bodies import check_media_type, header_of, read_at_once, whole_body
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.operations import JSON_TYPE, Body, Call, Operation
from penstock.gateway.web.problem import Problem, too_busy
from penstock.gateway.web.quotas import CallerQuota, caller_of
from penstock.gateway.web.router import Router

log = logging.getLogger(__name__)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

Services = TypeVar("Services")
SocketHandler = Callable[[Services, WebSocket], Awaitable[None]]
ErrorRenderer = Callable[[Problem], Response]
# Rewrites a path: the actual path, and the query parameters that the original stands for.
Rewrite = Callable[[str], tuple[str, dict[str, str]]]

# Reads a JSON body that matches the declared schema; the status is the one for bodies that do not.
ReadJson = Callable[[bytes, Body, int], Awaitable[object]]


@dataclass(slots=True)
class RequestCount:
    """How many requests are being served, and the limit."""

    limit: int
    count: int = 0


class Load:
    """What is being served: requests, each caller's share of them, and the bytes of their large bodies."""

    def __init__(self, limits: Limits) -> None:
        self.under_way = RequestCount(limits.requests_max)
        self.shares = CallerQuota("requests", limits, "requests")
        self.large_bodies = CallerQuota("bytes of large bodies", limits, "large_bodies_bytes")


def finite(value: object) -> object:
    """The value with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list | tuple) else value


def json_response(
    value: object, status: int = 200, media_type: str = JSON_TYPE, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON response. Numbers that JSON does not have, which stored data may contain, become null."""
    try:
        content = _encode(value).encode("utf-8", "replace")
    except ValueError:
        content = _encode(finite(value)).encode("utf-8", "replace")
    return _JsonResponse(content, status, headers, media_type)


class _JsonResponse(Response):
    """A response whose headers are built in one step, because most responses are short and there are many of them."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        assert self.media_type is not None
        self.raw_headers = [
            (b"content-length", b"%d" % len(self.body)),
            (b"content-type", self.media_type.encode("latin-1")),
        ]
        if headers:
            self.raw_headers += [
                (name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()
            ]


def plain_error(problem: Problem) -> Response:
    """A Problem as a response."""
    response = json_response(problem.as_json(), problem.status)
    response.headers.update(problem.headers)
    return response


@dataclass(frozen=True, slots=True)
class BoundApplication:
    """An application whose requests all have the same services."""

    serves: Callable[[str, str], bool]
    serve: ASGIApp


class Application(Generic[Services]):
    """Serves the operations of one port, each with the services of its caller.

    `sockets` are the paths that accept WebSockets.

    `invalid_status` maps a path to the status for invalid bodies, which differs from API to API.
    """

    def __init__(
        self,
        operations: Iterable[Operation[Services]],
        *,
        limits: Limits,
        sockets: dict[str, SocketHandler[Services]] | None = None,
        invalid_status: Callable[[str], int] = lambda _: 400,
        render_error: ErrorRenderer = plain_error,
        rewrite: Rewrite = lambda path: (path, {}),
        read_json: ReadJson = read_at_once,
        load: Load | None = None,
    ) -> None:
        """`load` counts the requests of several applications together."""
        self._read_body = read_json
        self._router: Router[Services] = Router(operations)
        self._limits = limits
        self._sockets = sockets or {}
        self._invalid_status = invalid_status
        self._render_error = render_error
        self._rewrite = rewrite
        load = load or Load(limits)
        self.under_way = load.under_way
        self._shares = load.shares
        self._large_bodies = load.large_bodies

    def serves(self, method: str, path: str) -> bool:
        """Whether a request is for one of these operations."""
        try:
            self._router.find(method, self._rewrite(path)[0])
        except Problem as problem:
            return problem.status != 404
        return True

    def bind(self, services: Services) -> BoundApplication:
        """The application with these services for every request."""
        return BoundApplication(self.serves, partial(self.serve, services))

    async def serve(self, services: Services, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection's request with its caller's services; an ASGI application otherwise."""
        if scope["type"] == "http":
            await self._serve(services, scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_socket(services, scope, receive, send)
        elif scope["type"] == "lifespan":
            await _no_lifespan(receive, send)

    async def _serve(self, services: Services, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(services, Request(scope, receive))
        except Problem as problem:
            response = self._render_error(problem)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            response = self._render_error(Problem(50001, "internal error", "see the gateway's log"))
        await response(scope, receive, send)

    async def _answer(self, services: Services, request: Request) -> Response:
        path, implied = self._rewrite(raw_path(request.scope))
        operation, values = self._router.find(request.method, path)
        parameters = self._parameters(request, operation, values, implied)
        if operation.body is None:
            with self._admit(operation, caller_of(request.scope)):
                return await operation.handler(services, Call(request, parameters))
        status = self._invalid_status(path)
        check_media_type(request.scope, operation.body)
        async with whole_body(request, self._limits.body_bytes_max, self._large_bodies) as raw:
            if not raw and operation.body.required and operation.body.schema is not None:
                raise Problem(status, "the body is empty", "send JSON as described in /openapi.json")
            with self._admit(operation, caller_of(request.scope)):
                is_read = operation.body.validator is not None and bool(raw)
                body = await self._read_body(raw, operation.body, status) if is_read else None
                return await operation.handler(services, Call(request, parameters, body, raw))

    @contextlib.contextmanager
    def _admit(self, operation: Operation[Services], caller: str) -> Iterator[None]:
        """Admit a request once it has arrived completely. While it is arriving, however slowly, it does not count."""
        under_way = self.under_way
        if under_way.count >= under_way.limit and not operation.always_served:
            raise too_busy(f"{under_way.limit:,} requests are being served already (the limit requests_max)")
        if not operation.always_served:
            self._shares.take(caller)
        under_way.count += 1
        try:
            yield
        finally:
            under_way.count -= 1
            if not operation.always_served:
                self._shares.release(caller)

    def _parameters(
        self, request: Request, operation: Operation[Services], values: dict[str, str], implied: dict[str, str]
    ) -> dict[str, Any]:
        sent = {**self._query(request.scope["query_string"]), **implied}
        found = {}
        for parameter in operation.parameters:
            if parameter.where == "path":
                text: str | None = values.get(parameter.name)
            elif parameter.where == "query":
                text = sent.get(parameter.name)
            else:
                text = header_of(request.scope, parameter.name.lower().encode())
            found[parameter.name] = parameter.read(text)
        return found

    def _query(self, raw: bytes) -> dict[str, str]:
        if not raw:
            return {}
        try:
            return dict(
                parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=self._limits.query_fields_max)
            )
        except ValueError:
            why = f"the query has more fields than {self._limits.named('query_fields_max')}"
            raise Problem(40001, why, "send fewer") from None

    async def _serve_socket(self, services: Services, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        words = [word for word in scope["path"].split("/") if word]
        for pattern, handler in self._sockets.items():
            expected = [word for word in pattern.split("/") if word]
            if len(expected) == len(words) and all(
                part.startswith("{") or part == word for part, word in zip(expected, words, strict=True)
            ):
                scope["path_params"] = {
                    part.strip("{}"): word for part, word in zip(expected, words, strict=True) if part.startswith("{")
                }
                await handler(services, socket)
                return
        await socket.close(1008, "no such path")


def raw_path(scope: Scope) -> str:
    """The path as it was sent, still percent-encoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


async def _no_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return
