"""What is in a record, for people: JSON, text, a value with a schema, or bytes in hex."""

from __future__ import annotations

import json
from typing import Any

from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.schema_codec import MAGIC, PREFIX, SchemaCodec
from penstock.gateway.web.problem import Problem

FORMATS = ["auto", "json", "text", "schema", "hex"]
TEXT_MAX = 64 * 1024
HEX_MAX = 4 * 1024
# Control characters that text has.
PLAIN_CONTROLS = {9, 10, 13}


def show_record(record: ReadRecord, codec: SchemaCodec, key_format: str, value_format: str) -> dict[str, Any]:
    """A record with its key and value decoded."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": show_bytes(record.key, codec, key_format),
        "value": show_bytes(record.value, codec, value_format),
        "headers": [{"name": name, **show_bytes(value, codec, "auto")} for name, value in record.headers],
    }


def show_bytes(data: bytes | None, codec: SchemaCodec, wanted: str) -> dict[str, Any]:
    """Bytes as text, with the format that was found, their size, and why the wanted format did not fit if so."""
    if data is None:
        return {"format": "null", "text": None, "size": 0}
    shown: dict[str, Any] = {"size": len(data)}
    if wanted in ("auto", "schema") and len(data) >= PREFIX.size and data[0] == MAGIC:
        try:
            value = codec.decode(data)
            schema_id = PREFIX.unpack_from(data)[1]
            return {**shown, "format": "schema", "schema_id": schema_id, **_cut(json.dumps(value, ensure_ascii=False))}
        except Problem as problem:
            shown["note"] = problem.message
    elif wanted == "schema":
        shown["note"] = "there is no schema's id in front"
    text = _text(data) if wanted != "hex" else None
    if text is None:
        return {**shown, "format": "hex", "text": data[:HEX_MAX].hex(" "), "truncated": len(data) > HEX_MAX}
    return {**shown, "format": "json" if wanted != "text" and _is_json(text) else "text", **_cut(text)}


def _text(data: bytes) -> str | None:
    """UTF-8 without the control characters that only other formats have."""
    if any(byte < 32 and byte not in PLAIN_CONTROLS for byte in data[:200]):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_json(text: str) -> bool:
    if text[:1] not in '{["-0123456789tfn' or not text:
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _cut(text: str) -> dict[str, Any]:
    return {"text": text[:TEXT_MAX], "truncated": len(text) > TEXT_MAX}
