"""An operation of an HTTP API: its method and path, parameters and body, and the function that serves it.

The function gets the services of the request's caller and the checked request: what it may use comes with each call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator as AnyValidator
from jsonschema.validators import extend
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.web.parameters import Parameter
from penstock.gateway.web.quotas import caller_of

JSON_TYPE = "application/json"
NO_CONTENT: Mapping[int, object] = {204: None}


def _is_integer(_checker: object, value: object) -> bool:
    """JSON Schema also calls 1.0 an integer; Kafka's fields do not accept it."""
    return isinstance(value, int) and not isinstance(value, bool)


Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
)


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose parameters and body have been checked."""

    request: Request
    parameters: Mapping[str, Any]
    body: Any = None
    raw: bytes = b""

    @property
    def caller(self) -> str:
        """The caller that sent it."""
        return caller_of(self.request.scope)

    def __getitem__(self, name: str) -> Any:
        """The value of a path, query or header parameter."""
        return self.parameters[name]


Services = TypeVar("Services", contravariant=True)
Handler = Callable[[Services, Call], Awaitable[Response]]
# Called first for every call; raises Problem for those that are not served.
Check = Callable[[Services, Call], None]


@dataclass(frozen=True)
class Body:
    """A request's body. Without a schema it is accepted as it is; `media_types` are the accepted types."""

    schema: Mapping[str, Any] | None = None
    media_types: tuple[str, ...] = (JSON_TYPE,)
    required: bool = True
    # A handler that must be fast validates the body itself; the schema then only serves as documentation.
    checked: bool = True
    example: Any = None

    @cached_property
    def validator(self) -> AnyValidator | None:
        """Validates bodies; None if the handler does that itself."""
        return Validator(self.schema) if self.schema is not None and self.checked else None


@dataclass(frozen=True, slots=True)
class Operation(Generic[Services]):
    """One method on one path. `answers` are the JSON Schemas of response bodies by status; errors are implied."""

    method: str
    path: str
    handler: Handler[Services]
    summary: str
    tag: str
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    answers: Mapping[int, object] = field(default_factory=dict)
    answer_type: str = JSON_TYPE
    # Served even when the limit of concurrent requests is reached.
    always_served: bool = False

    @property
    def name(self) -> str:
        """A unique name."""
        words = [word.strip("{}") for word in self.path.replace(":", "/").split("/") if word]
        return "_".join([self.method.lower(), *words]).replace("-", "_").replace(".", "_")


class Routes(list[Operation[Services]]):
    """Operations of one tag, each declared by a decorator of its handler. Their paths start with `base`.

    An operation has those parameters of `in_paths` that its path names, and those declared with it.
    """

    def __init__(
        self,
        tag: str,
        base: str = "",
        in_paths: Iterable[Parameter] = (),
        *,
        answer_type: str = JSON_TYPE,
        check: Check[Services] | None = None,
    ) -> None:
        super().__init__()
        self._tag = tag
        self._base = base
        self._in_paths = tuple(in_paths)
        self._answer_type = answer_type
        self._check = check

    def on(
        self,
        route: str,
        summary: str,
        *parameters: Parameter,
        body: Body | None = None,
        answers: Mapping[int, object] | None = None,
        answer_type: str | None = None,
        always_served: bool = False,
    ) -> Callable[[Handler[Services]], Handler[Services]]:
        """Declare the operation that a handler serves; `route` is its method and path, such as `GET /{topic}`."""
        method, _, path = route.partition(" ")
        path = self._base + path
        named = [each for each in self._in_paths if f"{{{each.name}}}" in path]

        def declare(handler: Handler[Services]) -> Handler[Services]:
            operation = Operation(
                method,
                path,
                handler if self._check is None else _checked(handler, self._check),
                summary,
                self._tag,
                (*named, *parameters),
                body,
                answers or {},
                answer_type or self._answer_type,
                always_served,
            )
            self.append(operation)
            return handler

        return declare


def _checked(handler: Handler[Services], check: Check[Services]) -> Handler[Services]:
    async def handle(services: Services, call: Call) -> Response:
        check(services, call)
        return await handler(services, call)

    return handle


def json_object(required: Sequence[str] = (), /, **properties: object) -> dict[str, object]:
    """The JSON Schema of an object: the fields that it must have, and the schemas of fields."""
    needed = {"required": list(required)} if required else {}
    known = {"properties": properties} if properties else {}
    return {"type": "object", **needed, **known}


def closed_object(required: Sequence[str] = (), /, **properties: object) -> dict[str, Any]:
    """The same for an object that has no other fields."""
    return {**json_object(required, **properties), "additionalProperties": False}
