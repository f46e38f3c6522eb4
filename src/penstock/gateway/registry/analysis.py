"""What the registry wants to know about schemas. It is found out in workers: a schema may take any time to understand.

Everything here is a function of texts, and answers are texts.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from penstock.gateway.registry.compatibility import Level, incompatibilities
from penstock.gateway.registry.parsing import parse
from penstock.gateway.registry.schema import SchemaText, SchemaUnusable

REASONS_MAX = 200
REASON_LENGTH_MAX = 5000


class Texts(NamedTuple):
    """The texts of a schema that stand for all ways to write it."""

    canonical: str
    normalized: str


class Question(NamedTuple):
    """`texts` of a schema; its text in a `form`; the `reasons` why one may not follow others at a level."""

    kind: str
    arguments: tuple[Any, ...]

    def key(self) -> bytes:
        """The same for the same question."""
        return hashlib.sha256(repr(self).encode()).digest()


class Answer(NamedTuple):
    """What was found out, or why the schema cannot be used."""

    found: Any = None
    unusable: str | None = None


def answer(question: Question) -> Answer:
    """Find it out, here and now."""
    try:
        match question.kind:
            case "texts":
                [schema] = question.arguments
                parsed = _parsed(schema)
                return Answer(Texts(parsed.canonical, parsed.normalized))
            case "form":
                schema, form = question.arguments
                return Answer(_parsed(schema).formatted(form))
            case _:
                level, schema, older = question.arguments
                others = [(version, _parsed(each)) for version, each in older]
                return Answer(_cut(incompatibilities(Level(level), _parsed(schema), others)))
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


def _parsed(schema: SchemaText) -> Any:
    return parse(schema.schema_type, schema.text, schema.dependencies)
