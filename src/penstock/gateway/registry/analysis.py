"""Analysis of schemas: parsing, formatting and comparing. Runs in workers, because a schema may take any time.

Everything here is a function of texts and returns texts.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from penstock.gateway.registry.compatibility import Level, incompatibilities
from penstock.gateway.registry.parsing import parse
from penstock.gateway.registry.schema import ParsedSchema, SchemaText, SchemaUnusable

REASONS_MAX = 200
REASON_LENGTH_MAX = 5000


class Texts(NamedTuple):
    """A schema's canonical and normalized texts."""

    canonical: str
    normalized: str


class AnalysisRequest(NamedTuple):
    """Requests a schema's `texts`, its text in another `form`, or the `reasons` why it may not follow older ones.

    `detail` is the form or the compatibility level; older schemas are given as (version, schema), oldest first.
    """

    kind: Literal["texts", "form", "reasons"]
    schema: SchemaText
    detail: str = ""
    older: tuple[tuple[int, SchemaText], ...] = ()

    @property
    def size(self) -> int:
        """The length of all schema texts that it involves."""
        return self.schema.size + sum(schema.size for _, schema in self.older)


class Analysis(NamedTuple):
    """The result, or why the schema cannot be used."""

    found: Any = None
    unusable: str | None = None


def analyze(request: AnalysisRequest) -> Analysis:
    """Analyze on the calling thread."""
    try:
        parsed = _parsed(request.schema)
        match request.kind:
            case "texts":
                return Analysis(Texts(parsed.canonical, parsed.normalized))
            case "form":
                return Analysis(parsed.formatted(request.detail))
            case "reasons":
                older = [(version, _parsed(each)) for version, each in request.older]
                return Analysis(_cut(incompatibilities(Level(request.detail), parsed, older)))
    except SchemaUnusable as error:
        return Analysis(unusable=str(error))
    except RecursionError:
        return Analysis(unusable="it is nested too deeply")


def _cut(reasons: list[str]) -> list[str]:
    """Limit the number and length of the reasons."""
    shown = [
        reason if len(reason) <= REASON_LENGTH_MAX else f"{reason[:REASON_LENGTH_MAX]}…"
        for reason in reasons[:REASONS_MAX]
    ]
    left_out = len(reasons) - len(shown)
    return [*shown, f"and {left_out:,} more"] if left_out else shown


def _parsed(schema: SchemaText) -> ParsedSchema:
    return parse(schema.schema_type, schema.text, schema.dependencies)
