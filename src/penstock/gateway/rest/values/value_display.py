"""Schema-encoded values as JSON text for people to read, copy and search. Runs in workers."""

from __future__ import annotations

import io

import fastavro

from penstock.gateway.registry.schema import AVRO, SchemaText
from penstock.gateway.rest.values.avro_budget import SizeCheck
from penstock.gateway.rest.values.avro_display import avro_text
from penstock.gateway.rest.values.schema_values import decode, mismatches, parsed_avro
from penstock.gateway.work.budgets import Budgets


def display_text(schema: SchemaText, payload: bytes, budgets: Budgets) -> str:
    """The bytes after the schema id as JSON text, with Avro's logical types in readable form."""
    if schema.schema_type != AVRO:
        return decode(schema, payload, budgets)
    with mismatches():
        parsed, named = parsed_avro(schema)
        SizeCheck(named, budgets).check(parsed, payload)
        value = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None, return_named_type=True)
        return avro_text(parsed, named, value)
