"""An operation of an HTTP API: what it is called by, what it takes, and the function that serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator as AnyValidator
from jsonschema.validators import extend
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.web.parameters import Parameter
from penstock.gateway.web.shares import caller_of

JSON_TYPE = "application/json"


def _is_integer(checker: object, value: object) -> bool:
    """JSON Schema also calls 1.0 an integer; Kafka's fields do not take it."""
    del checker
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
        """Who sent it."""
        return caller_of(self.request.scope)

    def __getitem__(self, name: str) -> Any:
        """The value of a parameter of the path, the query or the headers."""
        return self.parameters[name]


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True)
class Body:
    """What a request carries. Without a schema it is taken as it comes; `media_types` are those it may have."""

    schema: Mapping[str, Any] | None = None
    media_types: tuple[str, ...] = (JSON_TYPE,)
    required: bool = True
    # A handler that must be fast checks the body itself; the schema is then for readers only.
    checked: bool = True
    example: Any = None

    @cached_property
    def validator(self) -> AnyValidator | None:
        """Checks bodies; None where there is nothing to check here."""
        return Validator(self.schema) if self.schema is not None and self.checked else None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path. `answers` are JSON Schemas of bodies by status; errors need not be listed."""

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    answers: Mapping[int, Any] = field(default_factory=dict)
    answer_type: str = JSON_TYPE
    # Also when as many requests are under way as may be.
    always_served: bool = False

    @property
    def name(self) -> str:
        """A name that no other operation has."""
        words = [word.strip("{}") for word in self.path.replace(":", "/").split("/") if word]
        return "_".join([self.method.lower(), *words]).replace("-", "_").replace(".", "_")
