"""What the registry wants to know about schemas. It is found out in workers: a schema may take any time to understand.

Everything here is a function of texts, and answers are texts.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from penstock.gateway.registry.compatibility import Level, incompatibilities
from penstock.gateway.registry.parsing import parse
from penstock.gateway.registry.schema import ParsedSchema, SchemaText, SchemaUnusable

REASONS_MAX = 200
REASON_LENGTH_MAX = 5000


class Texts(NamedTuple):
    """The texts of a schema that stand for all ways to write it."""

    canonical: str
    normalized: str


class Question(NamedTuple):
    """The `texts` of a schema; its text in another `form`; the `reasons` why it may not follow older ones at a level.

    `detail` is the form or the level; older schemas are given as (version, schema), oldest first.
    """

    kind: Literal["texts", "form", "reasons"]
    schema: SchemaText
    detail: str = ""
    older: tuple[tuple[int, SchemaText], ...] = ()

    @property
    def size(self) -> int:
        """The characters of all schemas that it is about."""
        return self.schema.size + sum(schema.size for _, schema in self.older)


class Answer(NamedTuple):
    """What was found out, or why the schema cannot be used."""

    found: Any = None
    unusable: str | None = None


def answer(question: Question) -> Answer:
    """Find it out, here and now."""
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
    """As many reasons as somebody might read."""
    shown = [
        reason if len(reason) <= REASON_LENGTH_MAX else f"{reason[:REASON_LENGTH_MAX]}…"
        for reason in reasons[:REASONS_MAX]
    ]
    left_out = len(reasons) - len(shown)
    return [*shown, f"and {left_out:,} more"] if left_out else shown


def _parsed(schema: SchemaText) -> ParsedSchema:
    return parse(schema.schema_type, schema.text, schema.dependencies)
