"""Changes of strings and numbers, and of limits in general."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from penstock.gateway.registry.formats.json_changes import Change
from penstock.gateway.registry.formats.json_nodes import JsonNode


def compare_limit(old: dict[str, object], new: dict[str, object], key: str, name: str) -> list[Change]:
    """How a numeric keyword changed: added, removed, increased or decreased."""
    before, after = _number(old.get(key)), _number(new.get(key))
    if before == after:
        return []
    if before is None:
        return [(f"{name}_ADDED", f"/{key}")]
    if after is None:
        return [(f"{name}_REMOVED", f"/{key}")]
    return [(f"{name}_INCREASED" if before < after else f"{name}_DECREASED", f"/{key}")]


def compare_string(old: dict[str, object], new: dict[str, object]) -> list[Change]:
    """Lengths and pattern."""
    changes = compare_limit(old, new, "maxLength", "MAX_LENGTH") + compare_limit(old, new, "minLength", "MIN_LENGTH")
    before, after = old.get("pattern"), new.get("pattern")
    if before != after:
        word = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        changes.append((f"PATTERN_{word}", "/pattern"))
    return changes


def compare_number(old: JsonNode, new: JsonNode) -> list[Change]:
    """Limits, multiples, and whether only integers are accepted."""
    changes = [
        change
        for key, name in (
            ("maximum", "MAXIMUM"),
            ("minimum", "MINIMUM"),
            ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
            ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
        )
        for change in compare_limit(old.raw, new.raw, key, name)
    ]
    changes += _compare_multiple(_number(old.raw.get("multipleOf")), _number(new.raw.get("multipleOf")))
    if old.integer is not new.integer:
        changes.append(("TYPE_EXTENDED" if old.integer else "TYPE_NARROWED", ""))
    return changes


def _compare_multiple(before: Decimal | None, after: Decimal | None) -> list[Change]:
    if before == after:
        return []
    if before is None:
        word = "ADDED"
    elif after is None:
        word = "REMOVED"
    elif before and after % before == 0:
        word = "EXPANDED"
    elif after and before % after == 0:
        word = "REDUCED"
    else:
        word = "CHANGED"
    return [(f"MULTIPLE_OF_{word}", "/multipleOf")]


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return Decimal(str(value))
