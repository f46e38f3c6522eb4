"""JSON Schema: parsing with references, and compatibility."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import jsonschema.exceptions
import jsonschema.validators

from penstock.gateway.registry.formats.json_changes import HARMLESS
from penstock.gateway.registry.formats.json_diff import Comparison
from penstock.gateway.registry.formats.json_nodes import Document
from penstock.gateway.registry.schema import JSON, Dependencies, Difference, SchemaUnusable, compact


class JsonSchema:
    """A JSON Schema of draft 4 to 2020-12; draft 7 if it names none."""

    schema_type = JSON

    def __init__(self, text: str, dependencies: Dependencies = ()) -> None:
        others: dict[str, Document] = {}
        for name, dependency in dependencies:
            others[name] = Document(_load(dependency, f"the reference {name!r}"), others)
        value = _load(text, "it")
        _check(value)
        self._document = Document(value, others)
        self.canonical = compact(value)
        self.normalized = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        # Dangling references are found now rather than when the first record is validated.
        _visit(self._document, value)

    def unreadable(self, writer: JsonSchema) -> list[Difference]:
        """The changes that make this schema reject values that `writer` accepted."""
        older, newer = writer._document, self._document
        changes = Comparison().changes(older.node(older.root), newer.node(newer.root))
        return [Difference(kind, f"#{path}") for kind, path in changes if kind not in HARMLESS]

    def formatted(self, form: str) -> str:  # noqa: ARG002
        """JSON Schema has one form."""
        return self.canonical


def _load(text: str, what: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaUnusable(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict | bool):
        raise SchemaUnusable(f"{what} is not a JSON Schema: it must be an object or a boolean")
    return value


def _check(value: Any) -> None:
    validator = jsonschema.validators.validator_for(value, default=jsonschema.Draft7Validator)
    try:
        validator.check_schema(value)
    except jsonschema.exceptions.SchemaError as error:
        location = "/".join(str(word) for word in error.absolute_path)
        raise SchemaUnusable(f"it is not a valid JSON Schema: at #/{location}: {error.message}") from None
    except RecursionError:
        raise SchemaUnusable("it is nested too deeply") from None


def _visit(document: Document, schema: object) -> None:
    """Resolve every `$ref` of a document."""
    waiting = [schema]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, dict):
            if isinstance(schema.get("$ref"), str):
                document.resolve(schema["$ref"])
            waiting += [value for key, value in schema.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(schema, list):
            waiting += schema
