"""Path, query and header parameters: declared once, and validated and documented from the same declaration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.gateway.web.problem import Problem

Where = Literal["path", "query", "header"]
INTEGER = re.compile(r"-?\d{1,19}")
BOOLEANS = {"true": True, "false": False, "True": True, "False": False, "": True}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request. `schema` is its JSON Schema; a `default` in it makes the parameter optional."""

    name: str
    where: Where
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False

    def read(self, text: str | None) -> Any:
        """The parsed value, or the default if it was not sent; raises Problem if it is invalid."""
        if text is None:
            if self.required:
                raise Problem(40001, f"{self.where} parameter {self.name!r} is missing", self._expected())
            return self.schema.get("default")
        kind = self.schema.get("type")
        if kind == "integer":
            return self._integer(text)
        if kind == "boolean":
            if text not in BOOLEANS:
                raise self._wrong(text)
            return BOOLEANS[text]
        options = self.schema.get("enum")
        if options is not None and text not in options:
            raise self._wrong(text)
        if len(text) < self.schema.get("minLength", 0) or len(text) > self.schema.get("maxLength", len(text)):
            raise self._wrong(text)
        pattern = self.schema.get("pattern")
        if pattern is not None and not re.search(pattern, text):
            raise self._wrong(text)
        return text

    def _integer(self, text: str) -> int:
        if not INTEGER.fullmatch(text):
            raise self._wrong(text)
        value = int(text)
        if value < self.schema.get("minimum", value) or value > self.schema.get("maximum", value):
            raise self._wrong(text)
        return value

    def _wrong(self, text: str) -> Problem:
        return Problem(40001, f"{self.where} parameter {self.name!r} cannot be {text[:80]!r}", self._expected())

    def _expected(self) -> str:
        schema = self.schema
        if "enum" in schema:
            return f"use one of {', '.join(map(str, schema['enum']))}"
        if schema.get("type") == "integer":
            low, high = schema.get("minimum"), schema.get("maximum")
            limits = "".join([f" from {low}" if low is not None else "", f" up to {high}" if high is not None else ""])
            return f"use an integer{limits}"
        if schema.get("type") == "boolean":
            return "use true or false"
        return f"give {self.description[:1].lower()}{self.description[1:]}"


def path(name: str, description: str, **schema: Any) -> Parameter:
    """A path parameter."""
    return Parameter(name, "path", description, {"type": "string", "minLength": 1, **schema}, required=True)


def query(name: str, description: str, **schema: Any) -> Parameter:
    """A query parameter; text unless `schema` has another `type`."""
    return Parameter(name, "query", description, {"type": "string", **schema})


def flag(name: str, description: str) -> Parameter:
    """A boolean query parameter, false by default."""
    return Parameter(name, "query", description, {"type": "boolean", "default": False})


def number(name: str, description: str, minimum: int | None = 0, **schema: Any) -> Parameter:
    """An integer query parameter, at least `minimum`."""
    limits = {} if minimum is None else {"minimum": minimum}
    return Parameter(name, "query", description, {"type": "integer", **limits, **schema})


def header(name: str, description: str, **schema: object) -> Parameter:
    """A header parameter."""
    return Parameter(name, "header", description, {"type": "string", **schema})
