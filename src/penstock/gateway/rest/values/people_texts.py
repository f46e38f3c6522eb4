"""Values with schemas as JSON texts that people read, copy, and search in. This runs in workers."""

from __future__ import annotations

import io

import fastavro

from penstock.gateway.registry.schema import AVRO, SchemaText
from penstock.gateway.rest.values.avro_budget import Measure
from penstock.gateway.rest.values.avro_people import avro_text
from penstock.gateway.rest.values.schema_values import decode, parsed_avro, understood
from penstock.gateway.work.budgets import Budgets


def people_text(schema: SchemaText, payload: bytes, budgets: Budgets) -> str:
    """The bytes after a schema's id as JSON text: Avro's logical types as people write them."""
    if schema.schema_type != AVRO:
        return decode(schema, payload, budgets)
    with understood():
        parsed, named = parsed_avro(schema)
        Measure(named, budgets).check(parsed, payload)
        value = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None, return_named_type=True)
        return avro_text(parsed, named, value)
