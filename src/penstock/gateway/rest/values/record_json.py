"""Records as JSON text, for display in the console and for REST Proxy v2.

Pure functions of records and schemas. Small records without schemas are converted on the event loop, others by workers.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from penstock.gateway.kafka.dead_letter_headers import origin_of
from penstock.gateway.kafka.records import HEADERS_UNREADABLE, ReadRecord
from penstock.gateway.registry.schema import SchemaText
from penstock.gateway.rest.values.json_text import is_json, json_bytes
from penstock.gateway.rest.values.schema_values import MAGIC, PREFIX, SchemaMismatch, decode
from penstock.gateway.rest.values.value_display import display_text
from penstock.gateway.work.budgets import Budgets

FORMATS = ["auto", "json", "text", "schema", "hex"]
TEXT_MAX = 64 * 1024
HEX_MAX = 4 * 1024
# Control characters that occur in text.
PLAIN_CONTROLS = {9, 10, 13}

# By schema id: the schema, or why it cannot be used.
Schemas = Mapping[int, SchemaText | str]


def schema_id_of(data: bytes | None) -> int | None:
    """The schema id in front of the bytes; None if there is none."""
    if data is None or len(data) < PREFIX.size or data[0] != MAGIC:
        return None
    schema_id: int = PREFIX.unpack_from(data)[1]
    return schema_id


def schema_of(data: bytes, schemas: Schemas) -> SchemaText:
    """The schema of bytes that start with its id; raises SchemaMismatch if there is no id or the schema is missing."""
    schema_id = schema_id_of(data)
    if schema_id is None:
        raise SchemaMismatch("it does not start with a schema id")
    schema = schemas.get(schema_id)
    if schema is None:
        raise SchemaMismatch(f"it has schema id {schema_id}, which does not exist")
    if isinstance(schema, str):
        raise SchemaMismatch(schema)
    return schema


def text_of(data: bytes, schemas: Schemas, budgets: Budgets) -> str:
    """Bytes that start with a schema id as readable text; raises SchemaMismatch if they do not match the schema."""
    return display_text(schema_of(data, schemas), data[PREFIX.size :], budgets)


def show_records(
    records: list[ReadRecord], key_format: str, value_format: str, schemas: Schemas, budgets: Budgets
) -> list[bytes]:
    """Records for display, with keys and values decoded."""
    return [show_record(record, key_format, value_format, schemas, budgets) for record in records]


def show_record(
    record: ReadRecord,
    key_format: str,
    value_format: str,
    schemas: Schemas,
    budgets: Budgets,
    given_up: str = "",
) -> bytes:
    """One record for display. `given_up` is the reason why nothing expensive is attempted."""
    given_up = record.unreadable or given_up

    def show(data: bytes | None, wanted: str) -> dict[str, object]:
        if given_up:
            return {**_raw(data), "note": given_up}
        return _show_bytes(data, wanted, schemas, budgets)

    shown: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": show(record.key, key_format),
        "value": show(record.value, value_format),
        "headers": [{"name": name, **show(value, "auto")} for name, value in record.headers],
    }
    if record.headers_unreadable:
        shown["headers"] = [{"name": "?", **_raw(None), "note": HEADERS_UNREADABLE}]
    origin = origin_of(record.headers)
    if origin is not None:
        shown["origin"] = origin.as_json()
    return json_bytes(shown)


def _show_bytes(data: bytes | None, wanted: str, schemas: Schemas, budgets: Budgets) -> dict[str, Any]:
    """Bytes as text with the detected format, the size, and why the requested format was not used, if so."""
    if data is None:
        return _raw(None)
    shown: dict[str, Any] = {"size": len(data)}
    schema_id = schema_id_of(data)
    if wanted in ("auto", "schema") and schema_id is not None:
        try:
            text = text_of(data, schemas, budgets)
            return {**shown, "format": "schema", "schema_id": schema_id, **_cut(text)}
        except SchemaMismatch as error:
            shown["note"] = str(error)
    elif wanted == "schema":
        shown["note"] = "it does not start with a schema id"
    text_found = _text(data) if wanted != "hex" else None
    if text_found is None:
        return {**_raw(data), **shown}
    form = "text"
    if wanted != "text":
        try:
            form = "json" if _may_be_json(text_found) and is_json(text_found) else "text"
        except RecursionError:
            shown["note"] = "it is nested too deeply to detect whether it is JSON"
    return {**shown, "format": form, **_cut(text_found)}


def _raw(data: bytes | None) -> dict[str, Any]:
    """The beginning of the bytes in hex."""
    if data is None:
        return {"format": "null", "text": None, "size": 0}
    return {"size": len(data), "format": "hex", "text": data[:HEX_MAX].hex(" "), "truncated": len(data) > HEX_MAX}


def _text(data: bytes) -> str | None:
    """UTF-8 text; None if it contains control characters that text does not have."""
    if any(byte < 32 and byte not in PLAIN_CONTROLS for byte in data[:200]):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _may_be_json(text: str) -> bool:
    return bool(text) and text[0] in '{["-0123456789tfn'


def _cut(text: str) -> dict[str, object]:
    return {"text": text[:TEXT_MAX], "truncated": len(text) > TEXT_MAX}


def find_text(
    records: list[ReadRecord], key: str | None, contains: str, schemas: Schemas, budgets: Budgets
) -> list[bool]:
    """For each record, whether it has this key and contains this text, decoded by its schema if it has one."""
    wanted = contains.lower()

    def text(data: bytes | None) -> str:
        if data is None:
            return ""
        if data[:1] != b"\0":
            return data.decode("utf-8", "replace")
        try:
            return text_of(data, schemas, budgets)
        except SchemaMismatch:
            return data.decode("latin-1")

    return [
        (key is None or text(record.key) == key)
        and (not wanted or wanted in text(record.value).lower() or wanted in text(record.key).lower())
        for record in records
    ]


def v2_records(records: list[ReadRecord], form: str, schemas: Schemas, budgets: Budgets) -> list[bytes | str]:
    """Records in REST Proxy v2's form; the reason for those that cannot be converted to the format."""
    shown: list[bytes | str] = []
    for record in records:
        try:
            shown.append(_v2_record(record, form, schemas, budgets))
        except SchemaMismatch as error:
            shown.append(str(error))
    return shown


def _v2_record(record: ReadRecord, form: str, schemas: Schemas, budgets: Budgets) -> bytes:
    """Keys in schema formats may be plain bytes; those are shown in base64."""
    if record.unreadable:
        raise SchemaMismatch(record.unreadable)
    try:
        key = _v2_text(record.key, form, schemas, budgets)
    except SchemaMismatch:
        key = _v2_text(record.key, "binary", schemas, budgets)
    return b'{"topic":%b,"key":%b,"value":%b,"partition":%d,"offset":%d}' % (
        json_bytes(record.topic),
        key,
        _v2_text(record.value, form, schemas, budgets),
        record.partition,
        record.offset,
    )


def _v2_text(data: bytes | None, form: str, schemas: Schemas, budgets: Budgets) -> bytes:
    if data is None:
        return b"null"
    if form == "binary":
        return b'"%b"' % base64.b64encode(data)
    if form != "json":
        return decode(schema_of(data, schemas), data[PREFIX.size :], budgets).encode()
    # JSON is passed on verbatim: a number must not change its digits.
    try:
        if is_json(data.decode()):
            return data
    except RecursionError:
        raise SchemaMismatch("it is nested too deeply") from None
    except UnicodeDecodeError:
        pass
    raise SchemaMismatch("it is not JSON")
