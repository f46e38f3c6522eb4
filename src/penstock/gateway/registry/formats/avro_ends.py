"""Avro schemas that no value can fit, because every value would have to hold another one of its own kind.

A record ends if all its fields do, a union if one of its branches does; arrays and maps may be empty, and all else is
finite. What a reader does with a schema that does not end is to call itself until its stack is full.
"""

from __future__ import annotations

from collections.abc import Iterable

import avro.schema

from penstock.gateway.registry.schema import SchemaUnusable


def check_ends(schema: avro.schema.Schema) -> None:
    """SchemaUnusable, with the record's name and what to do, where a record within the schema cannot end."""
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
                f"no value of the record {each.fullname} could ever end, because its field {fields[0]!r} always holds "
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
