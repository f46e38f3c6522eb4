"""Changes of arrays: the schema of all items, of single positions, of additional items, and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.gateway.registry.formats.json_changes import Change, harmless
from penstock.gateway.registry.formats.json_diff_object import (
    compare_rest,
    compare_unevaluated,
    is_open,
    rest_schema,
)
from penstock.gateway.registry.formats.json_diff_scalar import compare_limit
from penstock.gateway.registry.formats.json_nodes import JsonNode, Kind

if TYPE_CHECKING:
    from penstock.gateway.registry.formats.json_diff import Comparison

LIMITS = (
    ("maxItems", "MAX_ITEMS"),
    ("minItems", "MIN_ITEMS"),
    ("maxContains", "MAX_CONTAINS"),
    ("minContains", "MIN_CONTAINS"),
)


def compare_array(comparison: Comparison, old: JsonNode, new: JsonNode) -> list[Change]:
    """Every change between two array schemas."""
    old, new = _older_form(old), _older_form(new)
    before, after = (node.sub(node.raw["items"]) if _single(node.raw) else None for node in (old, new))
    changes = [(kind, f"/items{path}") for kind, path in comparison.compare(before, after)]
    changes += _compare_positions(comparison, old, new)
    changes += compare_rest(comparison, old, new, "additionalItems", "ADDITIONAL_ITEMS")
    changes += compare_unevaluated(comparison, old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
    for key, name in LIMITS:
        changes += compare_limit(old.raw, new.raw, key, name)
    unique = (old.raw.get("uniqueItems") is True, new.raw.get("uniqueItems") is True)
    if unique[0] is not unique[1]:
        changes.append(("UNIQUE_ITEMS_REMOVED" if unique[0] else "UNIQUE_ITEMS_ADDED", "/uniqueItems"))
    return changes


def _older_form(node: JsonNode) -> JsonNode:
    """Since draft 2020-12 positions are `prefixItems` and the rest `items`; before, `items` and `additionalItems`."""
    if "prefixItems" not in node.raw:
        return node
    raw = {key: value for key, value in node.raw.items() if key not in ("prefixItems", "items")}
    raw["items"] = node.raw["prefixItems"]
    if "items" in node.raw:
        raw["additionalItems"] = node.raw["items"]
    return JsonNode(Kind.ARRAY, raw, node.document)


def _single(raw: dict[str, Any]) -> bool:
    return isinstance(raw.get("items"), dict | bool)


def _positions(node: JsonNode) -> list[object]:
    items = node.raw.get("items")
    return items if isinstance(items, list) else []


def _compare_positions(comparison: Comparison, old: JsonNode, new: JsonNode) -> list[Change]:
    changes: list[Change] = []
    before, after = _positions(old), _positions(new)
    for index in range(max(len(before), len(after))):
        if index >= len(after):
            found = _removed(comparison, old.sub(before[index]), new)
        elif index >= len(before):
            found = _added(comparison, old, new.sub(after[index]))
        else:
            found = comparison.compare(old.sub(before[index]), new.sub(after[index]))
        changes += [(kind, f"/items/{index}{path}") for kind, path in found]
    return changes


def _removed(comparison: Comparison, gone: JsonNode, new: JsonNode) -> list[Change]:
    if is_open(new, "additionalItems", "unevaluatedItems"):
        return [("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
    cover = rest_schema(new, "additionalItems", "unevaluatedItems")
    if cover is not None:
        changes = comparison.compare(gone, cover)
        word = "IS" if harmless(changes) else "NOT"
        return [*changes, (f"ITEM_REMOVED_{word}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
    if gone.kind is Kind.NOTHING:
        return [("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
    return [("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]


def _added(comparison: Comparison, old: JsonNode, come: JsonNode) -> list[Change]:
    if is_open(old, "additionalItems", "unevaluatedItems"):
        if come.kind is Kind.ANYTHING:
            return [("ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        return [("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "")]
    cover = rest_schema(old, "additionalItems", "unevaluatedItems")
    if cover is None:
        return [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")]
    changes = comparison.compare(cover, come)
    word = "IS" if harmless(changes) else "NOT"
    return [*changes, (f"ITEM_ADDED_{word}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
