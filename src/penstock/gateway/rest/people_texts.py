"""Values with schemas as JSON texts that people read, copy, and search in. This runs in workers."""

from __future__ import annotations

import io
import json

import fastavro

from penstock.gateway.registry.schema import AVRO, JSON, SchemaText
from penstock.gateway.rest.avro_budget import Measure
from penstock.gateway.rest.avro_people import avro_text
from penstock.gateway.rest.json_text import is_json
from penstock.gateway.rest.schema_values import Unfit, decode, parsed_avro, understood
from penstock.gateway.work.budgets import Budgets


def people_text(schema: SchemaText, payload: bytes, budgets: Budgets) -> str:
    """The bytes after a schema's id as JSON text: Avro's logical types as they are said, JSON as it was written."""
    if schema.schema_type == JSON:
        return json_payload(payload)
    if schema.schema_type != AVRO:
        return json.dumps(decode(schema, payload, budgets), ensure_ascii=False)
    with understood():
        parsed, named = parsed_avro(schema)
        Measure(named, budgets).check(parsed, payload)
        return avro_text(
            parsed, named, fastavro.schemaless_reader(io.BytesIO(payload), parsed, None, return_named_type=True)
        )


def json_payload(payload: bytes) -> str:
    """The text of JSON that stands after a schema's id, untouched."""
    with understood():
        text = payload.decode()
        if is_json(text):
            return text
    raise Unfit("it does not fit its schema: it is not JSON")
