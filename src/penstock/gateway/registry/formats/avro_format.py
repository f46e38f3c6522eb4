"""Avro schemas: parsing with references, and compatibility."""

from __future__ import annotations

import json
import warnings
from typing import Any

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from penstock.gateway.registry.formats.avro_finite import check_finite
from penstock.gateway.registry.formats.avro_text import PRIMITIVES, normalized_text, ordered
from penstock.gateway.registry.schema import AVRO, Dependencies, Difference, SchemaUnusable, compact


class AvroSchema:
    """An Avro schema. Its references are parsed before it, so that their names are known."""

    schema_type = AVRO

    def __init__(self, text: str, dependencies: Dependencies = ()) -> None:
        names = avro.name.Names(validate_names=True)
        for name, dependency in dependencies:
            try:
                _parse(ordered(_load(dependency)), names)
            except SchemaUnusable as error:
                raise SchemaUnusable(f"the reference {name!r} cannot be used: {error}") from None
        value = ordered(_load(text))
        self._parsed = _parse(value, names)
        check_finite(self._parsed)
        self.canonical = compact(value)
        self.normalized = normalized_text(value)

    def unreadable(self, writer: AvroSchema) -> list[Difference]:
        """By the rules of Avro's specification; decimals must also have the same scale."""
        result = _Checker().get_compatibility(self._parsed, writer._parsed)
        if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return []
        kinds = sorted({incompatibility.value.upper() for incompatibility in result.incompatibilities})
        where = ", ".join(sorted(result.locations))
        return [Difference("+".join(kinds) or "INCOMPATIBLE", where, "; ".join(sorted(result.messages)))]

    def formatted(self, form: str) -> str:
        """`resolved` has its references inlined; any other form is the canonical one."""
        return json.dumps(self._parsed.to_json(), separators=(",", ":")) if form == "resolved" else self.canonical


class _Checker(avro.compatibility.ReaderWriterCompatibilityChecker):
    """Avro's own compatibility check, extended to decimals."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def calculate_compatibility(
        self, reader: avro.schema.Schema, writer: avro.schema.Schema, location: list[str]
    ) -> avro.compatibility.SchemaCompatibilityResult:
        result = super().calculate_compatibility(reader, writer, location)
        scales = (_decimal_scale(reader), _decimal_scale(writer))
        if reader.type != writer.type or None in scales or scales[0] == scales[1]:
            return result
        mismatch = avro.compatibility.incompatible(
            avro.compatibility.SchemaIncompatibilityType.type_mismatch,
            f"decimal scale {scales[0]} cannot read scale {scales[1]}",
            [*location, "scale"],
        )
        return avro.compatibility.merge(result, mismatch)


def _decimal_scale(schema: avro.schema.Schema) -> int | None:
    """A decimal's scale; None for every other schema."""
    if not isinstance(schema, avro.schema.BytesDecimalSchema | avro.schema.FixedDecimalSchema):
        return None
    scale = schema.get_prop("scale")
    return scale if isinstance(scale, int) else 0


def _load(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # A bare type name is a schema too, and older clients send it without quotes.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaUnusable(f"it is not valid JSON: {error}") from None


def _parse(value: Any, names: avro.name.Names) -> avro.schema.Schema:
    try:
        with warnings.catch_warnings():
            # Logical types that the library does not know are kept as properties; that needs no warning.
            warnings.simplefilter("ignore")
            named = names.get_name(value) if isinstance(value, str) and value not in PRIMITIVES else None
            return named or avro.schema.make_avsc_object(value, names)
    except (avro.errors.AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SchemaUnusable(f"it is not a valid Avro schema: {error}") from None
