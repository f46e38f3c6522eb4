"""Detects Avro schemas without finite values, because every value would have to contain another one of its own type.

A record is finite if all its fields are, a union if one of its branches is; arrays and maps may be empty; all else is
finite. A reader of a schema without finite values would recurse until its stack overflows.
"""

from __future__ import annotations

from collections.abc import Iterable

import avro.schema

from penstock.gateway.registry.schema import SchemaUnusable


def check_finite(schema: avro.schema.Schema) -> None:
    """Raises SchemaUnusable, with the record's name and a fix, if a record in the schema has no finite value."""
    schemas = _all(schema)
    ending: set[int] = set()
    grown = True
    while grown:
        grown = False
        for each in schemas:
            if id(each) not in ending and _ends(each, ending):
                ending.add(id(each))
                grown = True
    for each in schemas:
        if id(each) not in ending and isinstance(each, avro.schema.RecordSchema):
            fields = [field.name for field in each.fields if id(field.type) not in ending]
            raise SchemaUnusable(
                f"the record {each.fullname} has no finite value, because its field {fields[0]!r} always contains "
                f'another {each.fullname}; make the field a union with "null", an array or a map'
            )


def _all(schema: avro.schema.Schema) -> list[avro.schema.Schema]:
    """Every schema within a schema, once, inner ones mostly first."""
    found: dict[int, avro.schema.Schema] = {}
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += _parts(each)
    return list(reversed(found.values()))


def _parts(schema: avro.schema.Schema) -> Iterable[avro.schema.Schema]:
    if isinstance(schema, avro.schema.RecordSchema):
        return [field.type for field in schema.fields]
    if isinstance(schema, avro.schema.UnionSchema):
        return list(schema.schemas)
    if isinstance(schema, avro.schema.ArraySchema):
        return [schema.items]
    return [schema.values] if isinstance(schema, avro.schema.MapSchema) else []


def _ends(schema: avro.schema.Schema, ending: set[int]) -> bool:
    if isinstance(schema, avro.schema.RecordSchema):
        return all(id(field.type) in ending for field in schema.fields)
    if isinstance(schema, avro.schema.UnionSchema):
        return any(id(branch) in ending for branch in schema.schemas)
    return True
