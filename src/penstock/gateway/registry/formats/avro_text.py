"""Avro schemas as text: the attribute order of Avro's own tools, and a normalized form."""

from __future__ import annotations

from typing import Any

from penstock.gateway.registry.schema import compact

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
ATTRIBUTE_ORDER = ("type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default")
FIELD_ORDER = ("name", "type", "doc", "default", "order", "aliases")


def ordered(schema: Any) -> object:
    """The schema with its attributes in a fixed order and without redundant wrappers; properties stay as they are."""
    return _ordered(schema, sort_properties=False, namespace=None)


def normalized_text(schema: object) -> str:
    """Like `ordered`, as text, with sorted properties and fully qualified names."""
    return compact(_ordered(schema, sort_properties=True, namespace=""))


def _ordered(schema: Any, *, sort_properties: bool, namespace: str | None) -> object:
    """`namespace` is the enclosing one if names are to be fully qualified, None if they stay as they are."""
    if isinstance(schema, str):
        return _full_name(schema, namespace) if schema not in PRIMITIVES else schema
    if isinstance(schema, list):
        return [_ordered(branch, sort_properties=sort_properties, namespace=namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        # {"type": {…}} is another way to write {…}.
        return _ordered(kind, sort_properties=sort_properties, namespace=namespace)
    if isinstance(kind, str) and set(schema) == {"type"}:
        return _ordered(kind, sort_properties=sort_properties, namespace=namespace)
    values = dict(schema)
    inner = namespace
    if namespace is not None and kind in NAMED and isinstance(values.get("name"), str):
        own = values.pop("namespace", None)
        full = _full_name(values["name"], own if isinstance(own, str) else namespace)
        values["name"] = full
        inner = full.rpartition(".")[0]
    for key in ("items", "values"):
        if key in values:
            values[key] = _ordered(values[key], sort_properties=sort_properties, namespace=inner)
    if isinstance(values.get("fields"), list):
        values["fields"] = [_field(each, sort_properties, inner) for each in values["fields"]]
    return _sorted(values, ATTRIBUTE_ORDER, sort_properties)


def _field(field: object, sort_properties: bool, namespace: str | None) -> object:
    if not isinstance(field, dict):
        return field
    values = dict(field)
    if "type" in values:
        values["type"] = _ordered(values["type"], sort_properties=sort_properties, namespace=namespace)
    return _sorted(values, FIELD_ORDER, sort_properties)


def _sorted(values: dict[str, Any], order: tuple[str, ...], sort_properties: bool) -> dict[str, object]:
    known = [key for key in order if key in values]
    others = [key for key in values if key not in order]
    return {key: values[key] for key in [*known, *(sorted(others) if sort_properties else others)]}


def _full_name(name: str, namespace: str | None) -> str:
    return name if not namespace or "." in name else f"{namespace}.{name}"
