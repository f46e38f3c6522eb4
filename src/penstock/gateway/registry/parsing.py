"""Parses a schema text in its format."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from penstock.gateway.registry.formats.avro_format import AvroSchema
from penstock.gateway.registry.formats.json_format import JsonSchema
from penstock.gateway.registry.formats.proto_format import ProtobufSchema
from penstock.gateway.registry.schema import AVRO, JSON, PROTOBUF, ParsedSchema, SchemaUnusable

PARSED_KEPT_MAX = 100

FORMATS: dict[str, Callable[[str, tuple[tuple[str, str], ...]], ParsedSchema]] = {
    AVRO: AvroSchema,
    JSON: JsonSchema,
    PROTOBUF: ProtobufSchema,
}


@lru_cache(maxsize=PARSED_KEPT_MAX)
def parse(schema_type: str, text: str, dependencies: tuple[tuple[str, str], ...] = ()) -> ParsedSchema:
    """The parsed schema of a text, whose dependencies are given as (name, text), each after those it depends on.

    Raises SchemaUnusable, with the reason, if the text is not a valid schema.
    """
    if schema_type not in FORMATS:
        raise SchemaUnusable(f"{schema_type!r} is not a schema type; use one of {', '.join(FORMATS)}")
    try:
        return FORMATS[schema_type](text, dependencies)
    except RecursionError:
        raise SchemaUnusable("it is nested too deeply") from None
