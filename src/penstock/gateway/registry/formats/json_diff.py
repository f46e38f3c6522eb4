"""The changes between two JSON Schemas, to decide whether one accepts all values that an older one accepted.

Pairs of nodes are compared kind by kind; combinations (allOf, anyOf, oneOf) by pairing their parts. json_changes lists
the harmless changes.
"""

from __future__ import annotations

from typing import Any

from penstock.gateway.registry.formats.json_changes import Change, harmless
from penstock.gateway.registry.formats.json_diff_array import compare_array
from penstock.gateway.registry.formats.json_diff_object import compare_object
from penstock.gateway.registry.formats.json_diff_scalar import compare_number, compare_string
from penstock.gateway.registry.formats.json_matching import matching_size
from penstock.gateway.registry.formats.json_nodes import JsonNode, Kind
from penstock.gateway.registry.schema import SchemaUnusable

COMPARISONS_MAX = 50_000


class Comparison:
    """One comparison of two documents, each pair of nodes once.

    A pair that is met again inside itself is assumed to be harmless at first. If that turns out wrong, everything
    is compared again with what was learned, until nothing new is: every round finds a harmful pair that earlier ones
    did not know, so there are at most as many rounds as pairs.
    """

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()
        self._done: dict[tuple[int, int], list[Change]] = {}
        self._harmful: dict[tuple[int, int], list[Change]] = {}
        self._parts: dict[int, list[JsonNode]] = {}
        self._assumed = False
        self._count = 0

    def changes(self, old: JsonNode, new: JsonNode) -> list[Change]:
        """How `new` differs from `old`."""
        while True:
            self._done, self._assumed = {}, False
            found = self.compare(old, new)
            harmful = {pair: changes for pair, changes in self._done.items() if not harmless(changes)}
            if not self._assumed or harmful.keys() <= self._harmful.keys():
                return found
            self._harmful = harmful

    def compare(self, old: JsonNode | None, new: JsonNode | None) -> list[Change]:
        """How `new` differs from `old`, in this round; paths are relative to the two."""
        if old is None or new is None:
            if old is new:
                return []
            return [("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED", "")]
        pair = (id(old), id(new))
        if pair in self._done:
            return self._done[pair]
        if pair in self._open:
            self._assumed = True
            return self._harmful.get(pair, [])
        self._count += 1
        if self._count > COMPARISONS_MAX:
            raise SchemaUnusable("the two schemas are too complex to compare; use fewer alternatives in anyOf/oneOf")
        self._open.add(pair)
        changes = self._compare_kinds(old, new)
        self._open.discard(pair)
        self._done[pair] = changes
        return changes

    def _compare_kinds(self, old: JsonNode, new: JsonNode) -> list[Change]:
        around = self._through_combination(old, new)
        if around is not None:
            return around
        if old.kind is not new.kind:
            if old.kind is Kind.NOTHING or new.kind is Kind.ANYTHING:
                return []
            if old.raw.get("connect.type") == "bytes" == new.raw.get("connect.type"):
                return []
            return [("TYPE_CHANGED", "")]
        changes = [
            (kind, "")
            for kind, key in (
                ("ID_CHANGED", "$id"),
                ("TITLE_CHANGED", "title"),
                ("DESCRIPTION_CHANGED", "description"),
                ("DEFAULT_CHANGED", "default"),
            )
            if old.raw.get(key) != new.raw.get(key)
        ]
        return changes + self._compare_same(old, new)

    def _compare_same(self, old: JsonNode, new: JsonNode) -> list[Change]:
        match old.kind:
            case Kind.STRING:
                return compare_string(old.raw, new.raw)
            case Kind.NUMBER:
                return compare_number(old, new)
            case Kind.ENUM:
                return _compare_enum(old.raw["enum"], new.raw["enum"])
            case Kind.CONST:
                return [] if _same(old.raw["const"], new.raw["const"]) else [("ENUM_ARRAY_CHANGED", "/const")]
            case Kind.COMBINED:
                return self._compare_combined(old, new)
            case Kind.NOT:
                reverse = self.compare(new.sub(new.raw["not"]), old.sub(old.raw["not"]))
                return [("NOT_TYPE_NARROWED" if harmless(reverse) else "NOT_TYPE_EXTENDED", "/not")]
            case Kind.OBJECT:
                return compare_object(self, old, new)
            case Kind.ARRAY:
                return compare_array(self, old, new)
        return []

    def _through_combination(self, old: JsonNode, new: JsonNode) -> list[Change] | None:
        """The changes if only one side is a combination and one of its parts matches the other side."""
        if (old.kind is Kind.COMBINED) is (new.kind is Kind.COMBINED):
            return None
        combined, opening = (new, ("anyOf", "oneOf")) if new.kind is Kind.COMBINED else (old, ("allOf",))
        alone = len(combined.parts) == 1
        if not alone and combined.criterion not in opening:
            return None
        word = "SUM_TYPE_EXTENDED" if combined is new else "PRODUCT_TYPE_NARROWED"
        for part in parts_of(combined):
            changes = self.compare(old, part) if combined is new else self.compare(part, new)
            if harmless(changes):
                return changes if alone else [*changes, (word, "")]
        return None

    def _compare_combined(self, old: JsonNode, new: JsonNode) -> list[Change]:
        changes: list[Change] = []
        single = (len(old.parts) == 1, len(new.parts) == 1)
        if old.criterion != new.criterion:
            extended = (
                new.criterion == "anyOf"
                or all(single)
                or (single[0] and new.criterion == "oneOf")
                or (single[1] and old.criterion == "allOf")
            )
            if not extended:
                return [("COMBINED_TYPE_CHANGED", "")]
            changes.append(("COMBINED_TYPE_EXTENDED", ""))
        old_parts, new_parts = self._distinct_parts(old), self._distinct_parts(new)
        if len(old_parts) < len(new_parts):
            changes.append(("PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED", ""))
        elif len(old_parts) > len(new_parts):
            changes.append(("PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED", ""))
        fitting = [[harmless(self.compare(old_part, new_part)) for new_part in new_parts] for old_part in old_parts]
        if matching_size(fitting) < min(len(old_parts), len(new_parts)):
            changes.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
        return changes

    def _distinct_parts(self, node: JsonNode) -> list[JsonNode]:
        if id(node) not in self._parts:
            self._parts[id(node)] = distinct(parts_of(node))
        return self._parts[id(node)]


def parts_of(node: JsonNode) -> list[JsonNode]:
    """The nodes of a combination's parts, which are schemas or already nodes."""
    return [part if isinstance(part, JsonNode) else node.sub(part) for part in node.parts]


def distinct(nodes: list[JsonNode]) -> list[JsonNode]:
    """Nodes without those that are equal to an earlier one."""
    kept: list[JsonNode] = []
    for node in nodes:
        if not any(node.kind is other.kind and node.raw == other.raw and node.parts == other.parts for other in kept):
            kept.append(node)
    return kept


def _compare_enum(old: list[Any], new: list[object]) -> list[Change]:
    gone = any(not any(_same(value, other) for other in new) for value in old)
    come = any(not any(_same(value, other) for other in old) for value in new)
    if gone and come:
        return [("ENUM_ARRAY_CHANGED", "/enum")]
    if gone or come:
        return [("ENUM_ARRAY_NARROWED" if gone else "ENUM_ARRAY_EXTENDED", "/enum")]
    return []


def _same(one: object, other: object) -> bool:
    """JSON's equality: true is not 1."""
    return one == other and isinstance(one, bool) is isinstance(other, bool)
