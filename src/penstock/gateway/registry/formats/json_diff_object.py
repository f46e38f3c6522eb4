"""Changes of objects: properties, required properties, and additional properties.

An object is open if it accepts properties it does not name, closed if it accepts none, and partially open if those it
does not name must match a schema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.gateway.registry.formats.json_changes import Change, harmless
from penstock.gateway.registry.formats.json_diff_scalar import compare_limit
from penstock.gateway.registry.formats.json_nodes import JsonNode, Kind
from penstock.gateway.registry.patterns import is_expression, is_quick
from penstock.gateway.registry.schema import SchemaUnusable

if TYPE_CHECKING:
    from penstock.gateway.registry.formats.json_diff import Comparison


def compare_object(comparison: Comparison, old: JsonNode, new: JsonNode) -> list[Change]:
    """Every change between two object schemas."""
    changes = _compare_required(old.raw, new.raw)
    changes += _compare_properties(comparison, old, new)
    changes += _compare_dependencies(comparison, old, new)
    changes += compare_rest(comparison, old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
    changes += compare_unevaluated(comparison, old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    changes += compare_limit(old.raw, new.raw, "maxProperties", "MAX_PROPERTIES")
    changes += compare_limit(old.raw, new.raw, "minProperties", "MIN_PROPERTIES")
    return changes


def _properties(raw: dict[str, Any]) -> dict[str, object]:
    found = raw.get("properties", {})
    return found if isinstance(found, dict) else {}


def _required(raw: dict[str, object]) -> list[object]:
    found = raw.get("required", [])
    return found if isinstance(found, list) else []


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _compare_required(old: dict[str, object], new: dict[str, object]) -> list[Change]:
    changes = []
    for name, schema in _properties(new).items():
        if name not in _properties(old):
            continue
        before, after = name in _required(old), name in _required(new)
        if before and not after:
            changes.append(("REQUIRED_ATTRIBUTE_REMOVED", f"/required/{name}"))
        elif after and not before:
            word = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if _has_default(schema) else "REQUIRED_ATTRIBUTE_ADDED"
            changes.append((word, f"/required/{name}"))
    return changes


def _compare_properties(comparison: Comparison, old: JsonNode, new: JsonNode) -> list[Change]:
    changes: list[Change] = []
    before, after = _properties(old.raw), _properties(new.raw)
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            found = _removed(comparison, old.sub(before[name]), new, name)
        elif name not in before:
            found = _added(comparison, old, new, name)
        else:
            found = comparison.compare(old.sub(before[name]), new.sub(after[name]))
        changes += [(kind, f"/properties/{name}{path}") for kind, path in found]
    return changes


def _removed(comparison: Comparison, gone: JsonNode, new: JsonNode, name: str) -> list[Change]:
    if is_open(new, "additionalProperties", "unevaluatedProperties"):
        return [("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
    cover = _cover(new, name)
    if cover is not None:
        changes = comparison.compare(gone, cover)
        word = "IS" if harmless(changes) else "NOT"
        return [*changes, (f"PROPERTY_REMOVED_{word}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
    if gone.kind is Kind.NOTHING:
        return [("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
    return [("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]


def _added(comparison: Comparison, old: JsonNode, new: JsonNode, name: str) -> list[Change]:
    schema = _properties(new.raw)[name]
    required, default = name in _required(new.raw), _has_default(schema)
    if is_open(old, "additionalProperties", "unevaluatedProperties"):
        if new.sub(schema).kind is Kind.ANYTHING:
            return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        word = "REQUIRED_PROPERTY_WITH_DEFAULT" if required and default else "REQUIRED_PROPERTY" if required else None
        return [(f"{word or 'OPTIONAL_PROPERTY'}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
    changes: list[Change] = []
    cover = _cover(old, name)
    if cover is not None:
        changes = comparison.compare(cover, new.sub(schema))
        word = "IS" if harmless(changes) else "NOT"
        changes = [*changes, (f"PROPERTY_ADDED_{word}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
    word = "OPTIONAL_PROPERTY" if not required else "REQUIRED_PROPERTY_WITH_DEFAULT" if default else "REQUIRED_PROPERTY"
    return [*changes, (f"{word}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]


def is_open(node: JsonNode, rest: str, unevaluated: str) -> bool:
    """Whether anything is allowed beyond what the schema names."""
    if node.raw.get(rest, True) is not True and node.raw[rest] != {}:
        return False
    if rest == "additionalProperties" and node.raw.get("patternProperties"):
        return False
    other = node.raw.get(unevaluated)
    return other is None or node.sub(other).kind is Kind.ANYTHING


def _cover(node: JsonNode, name: str) -> JsonNode | None:
    """The schema for a property that the object does not name; None in a closed object."""
    patterns = node.raw.get("patternProperties", {})
    for pattern, schema in patterns.items() if isinstance(patterns, dict) else ():
        if not is_expression(pattern):
            continue
        if not is_quick(pattern, len(name)):
            raise SchemaUnusable(f"its pattern {pattern[:100]!r} may take too long to be compared with other versions")
        if re.search(pattern, name):
            return node.sub(schema)
    return rest_schema(node, "additionalProperties", "unevaluatedProperties")


def rest_schema(node: JsonNode, rest: str, unevaluated: str) -> JsonNode | None:
    """The schema for everything not named, if there is one that allows some values but not all."""
    schema = node.raw.get(rest)
    if isinstance(schema, dict) and schema:
        return node.sub(schema)
    if schema is None and isinstance(node.raw.get(unevaluated), dict):
        other = node.sub(node.raw[unevaluated])
        return other if other.kind not in (Kind.ANYTHING, Kind.NOTHING) else None
    return None


def compare_rest(comparison: Comparison, old: JsonNode, new: JsonNode, key: str, name: str) -> list[Change]:
    """How `additionalProperties` or `additionalItems` changed."""
    before, after = old.raw.get(key, True), new.raw.get(key, True)
    if (before is False) != (after is False):
        return [(f"{name}_ADDED" if before is False else f"{name}_REMOVED", f"/{key}")]
    limited = (isinstance(before, dict) and bool(before), isinstance(after, dict) and bool(after))
    if limited == (True, True):
        return [(kind, f"/{key}{path}") for kind, path in comparison.compare(old.sub(before), new.sub(after))]
    if limited == (False, True):
        return [(f"{name}_NARROWED", f"/{key}")]
    return [(f"{name}_EXTENDED", f"/{key}")] if limited == (True, False) else []


def compare_unevaluated(comparison: Comparison, old: JsonNode, new: JsonNode, key: str, name: str) -> list[Change]:
    """How `unevaluatedProperties` or `unevaluatedItems` changed; without the keyword everything is allowed."""
    before, after = (node.sub(node.raw.get(key, True)) for node in (old, new))
    if before.kind is after.kind and before.kind in (Kind.ANYTHING, Kind.NOTHING):
        return []
    if before.kind is Kind.NOTHING:
        return [(f"{name}_ADDED", f"/{key}")]
    if after.kind is Kind.NOTHING:
        return [(f"{name}_REMOVED", f"/{key}")]
    if before.kind is Kind.ANYTHING:
        return [(f"{name}_NARROWED", f"/{key}")]
    if after.kind is Kind.ANYTHING:
        return [(f"{name}_EXTENDED", f"/{key}")]
    return [(kind, f"/{key}{path}") for kind, path in comparison.compare(before, after)]


def _dependencies(raw: dict[str, Any], key: str, kind: type) -> dict[str, Any]:
    """Dependencies of one form: lists of names, or schemas. Older drafts keep both under one keyword."""
    both = {**_mapping(raw.get("dependencies")), **_mapping(raw.get(key))}
    return {name: each for name, each in both.items() if isinstance(each, kind)}


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _compare_dependencies(comparison: Comparison, old: JsonNode, new: JsonNode) -> list[Change]:
    changes: list[Change] = []
    before, after = (_dependencies(node.raw, "dependentRequired", list) for node in (old, new))
    for name in [*before, *(name for name in after if name not in before)]:
        path = f"/dependencies/{name}"
        if name not in after:
            changes.append(("DEPENDENCY_ARRAY_REMOVED", path))
        elif name not in before:
            changes.append(("DEPENDENCY_ARRAY_ADDED", path))
        elif set(before[name]) != set(after[name]):
            wider, narrower = set(before[name]) < set(after[name]), set(after[name]) < set(before[name])
            word = "EXTENDED" if wider else "NARROWED" if narrower else "CHANGED"
            changes.append((f"DEPENDENCY_ARRAY_{word}", path))
    before, after = (_dependencies(node.raw, "dependentSchemas", dict) for node in (old, new))
    for name in [*before, *(name for name in after if name not in before)]:
        path = f"/dependencies/{name}"
        if name not in after:
            changes.append(("DEPENDENCY_SCHEMA_REMOVED", path))
        elif name not in before:
            changes.append(("DEPENDENCY_SCHEMA_ADDED", path))
        else:
            inner = comparison.compare(old.sub(before[name]), new.sub(after[name]))
            changes += [(kind, path + more) for kind, more in inner]
    return changes
