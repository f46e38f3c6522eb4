"""JSON Schema documents as nodes of one kind each, so that two of them can be compared kind by kind.

A schema object may combine several constraints: a type, an enum, a oneOf. Such a schema is read as an `allOf` of nodes
with one constraint each, a list of types as an `anyOf`, and a `$ref` as its target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from penstock.gateway.registry.schema import SchemaUnusable

REFERENCES_MAX = 100
SIBLING_DRAFTS = ("2019-09", "2020-12")
ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


class Kind(Enum):
    """The kind of constraint."""

    ANYTHING = "anything"
    NOTHING = "nothing"
    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"
    ENUM = "enum"
    CONST = "const"
    COMBINED = "combined"
    NOT = "not"


KEYWORDS = {
    kind: frozenset(words.split())
    for kind, words in {
        Kind.OBJECT: (
            "properties required additionalProperties patternProperties minProperties maxProperties dependencies "
            "dependentRequired dependentSchemas propertyNames unevaluatedProperties"
        ),
        Kind.ARRAY: (
            "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains "
            "unevaluatedItems"
        ),
        Kind.STRING: "minLength maxLength pattern format contentEncoding",
        Kind.NUMBER: "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
    }.items()
}
TYPES = {
    "object": Kind.OBJECT,
    "array": Kind.ARRAY,
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "null": Kind.NULL,
}


@dataclass(slots=True, eq=False)
class JsonNode:
    """One constraint on a value. `raw` is the schema object it came from, `parts` the schemas of a combination."""

    kind: Kind
    raw: dict[str, Any] = field(default_factory=dict)
    document: Document | None = None
    criterion: str = ""
    parts: list[Any] = field(default_factory=list)
    integer: bool = False

    def sub(self, schema: object) -> JsonNode:
        """The node of a subschema."""
        assert self.document is not None
        return self.document.node(schema)


# Nodes are compared by identity, so those of booleans are singletons.
ANYTHING = JsonNode(Kind.ANYTHING)
NOTHING = JsonNode(Kind.NOTHING)


class Document:
    """A schema document and those it refers to, by name."""

    def __init__(self, root: object, others: dict[str, Document]) -> None:
        self.root = root
        self._others = others
        self._nodes: dict[int, JsonNode] = {}
        # Synthesized schemas (one type of a list of types) must live as long as the nodes found by their `id()`.
        self._made: list[object] = []
        dialect = root.get("$schema", "") if isinstance(root, dict) else ""
        self._siblings = any(draft in str(dialect) for draft in SIBLING_DRAFTS)
        self._base = root.get("$id", root.get("id", "")) if isinstance(root, dict) else ""

    def node(self, schema: Any) -> JsonNode:
        """The node of a schema in this document; the same object for the same schema."""
        if isinstance(schema, bool):
            return ANYTHING if schema else NOTHING
        if not isinstance(schema, dict):
            raise SchemaUnusable(f"a schema must be an object or a boolean, not {type(schema).__name__}")
        known = self._nodes.get(id(schema))
        if known is None:
            known = self._nodes[id(schema)] = self._read(schema)
        return known

    def _read(self, schema: dict[str, Any]) -> JsonNode:
        target = schema.get("$ref")
        if isinstance(target, str):
            more = {key for key in schema if not key.startswith("$")} - ANNOTATIONS - {"definitions"}
            if not self._siblings or not more:
                return self.resolve(target)
        parts = self._parts(schema)
        if not parts:
            return JsonNode(Kind.ANYTHING, schema, self)
        if len(parts) == 1:
            return parts[0]
        return JsonNode(Kind.COMBINED, schema, self, "allOf", list(parts))

    def _parts(self, schema: dict[str, Any]) -> list[JsonNode]:
        parts = []
        if "$ref" in schema:
            parts.append(self.resolve(str(schema["$ref"])))
        if "enum" in schema:
            parts.append(JsonNode(Kind.ENUM, schema, self))
        elif "const" in schema:
            parts.append(JsonNode(Kind.CONST, schema, self))
        parts += [
            JsonNode(Kind.COMBINED, schema, self, criterion, list(schema[criterion]))
            for criterion in ("allOf", "anyOf", "oneOf")
            if isinstance(schema.get(criterion), list) and schema[criterion]
        ]
        if "not" in schema:
            parts.append(JsonNode(Kind.NOT, schema, self))
        types = schema.get("type")
        if isinstance(types, list) and len(types) != 1:
            made = [{**schema, "type": name} for name in types]
            for each in made:
                for key in ("enum", "const", "allOf", "anyOf", "oneOf", "not", "$ref"):
                    each.pop(key, None)
            self._made += made
            parts.append(JsonNode(Kind.COMBINED, schema, self, "anyOf", list(made)))
        elif types is not None:
            parts.append(self._typed(schema, types[0] if isinstance(types, list) else types))
        else:
            parts += [JsonNode(kind, schema, self) for kind, words in KEYWORDS.items() if words & schema.keys()]
        return parts

    def _typed(self, schema: dict[str, object], name: Any) -> JsonNode:
        if name not in TYPES:
            raise SchemaUnusable(f"{name!r} is not a JSON type")
        return JsonNode(TYPES[name], schema, self, integer=name == "integer")

    def resolve(self, target: str) -> JsonNode:
        """The node that a `$ref` in this document points to."""
        document, schema = self, None
        for _ in range(REFERENCES_MAX):
            document, schema = document._locate(target)
            if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
                return document.node(schema)
            if schema.keys() - {"$ref"} - ANNOTATIONS and document._siblings:
                return document.node(schema)
            target = schema["$ref"]
        raise SchemaUnusable(f"$ref {target!r} refers to itself")

    def _locate(self, target: str) -> tuple[Document, object]:
        address, fragment = urldefrag(target)
        document = self._document(address)
        if not fragment:
            return document, document.root
        if not fragment.startswith("/"):
            return document, document._anchored(fragment, target)
        value = document.root
        for word in unquote(fragment)[1:].split("/"):
            word = word.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and word in value:
                value = value[word]
            elif isinstance(value, list) and word.isdigit() and int(word) < len(value):
                value = value[int(word)]
            else:
                raise SchemaUnusable(f"$ref {target!r} points to nothing")
        return document, value

    def _document(self, address: str) -> Document:
        if not address or address == self._base:
            return self
        for name in (address, urljoin(str(self._base), address)):
            if name in self._others:
                return self._others[name]
        for other in self._others.values():
            if other._base and other._base in (address, urljoin(str(self._base), address)):
                return other
        inner = _with_id(self.root, address) or _with_id(self.root, urljoin(str(self._base), address))
        if inner is None:
            raise SchemaUnusable(f"$ref {address!r} is not among the references: add it to `references`")
        document = Document(inner, self._others)
        self._others[address] = document
        return document

    def _anchored(self, name: str, target: str) -> object:
        for schema in _schemas_in(self.root):
            if name in (schema.get("$anchor"), schema.get("$dynamicAnchor")) or schema.get("$id") == f"#{name}":
                return schema
        raise SchemaUnusable(f"$ref {target!r} points to nothing")


def _schemas_in(root: object) -> list[dict[str, object]]:
    """Every object in a document, outermost first."""
    found, waiting = [], [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.append(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _with_id(root: object, name: str) -> dict[str, object] | None:
    return next((schema for schema in _schemas_in(root) if schema.get("$id") == name and schema is not root), None)
