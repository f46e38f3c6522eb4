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


class Question(NamedTuple):
    """Asks for a schema's `texts`, its text in another `form`, or the `reasons` why it may not follow older ones.

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


class Answer(NamedTuple):
    """The result, or why the schema cannot be used."""

    found: Any = None
    unusable: str | None = None


def answer(question: Question) -> Answer:
    """Compute the answer, on the calling thread."""
    try:
        parsed = _parsed(question.schema)
        match question.kind:
            case "texts":
                return Answer(Texts(parsed.canonical, parsed.normalized))
            case "form":
                return Answer(parsed.formatted(question.detail))
            case "reasons":
                older = [(version, _parsed(each)) for version, each in question.older]
                return Answer(_cut(incompatibilities(Level(question.detail), parsed, older)))
    except SchemaUnusable as error:
        return Answer(unusable=str(error))
    except RecursionError:
        return Answer(unusable="it is nested too deeply")


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
