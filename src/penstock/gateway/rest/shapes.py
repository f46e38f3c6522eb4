"""Parameters, JSON shapes and small conversions that several resources share."""

from __future__ import annotations

import base64
import binascii

from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.records import HEADERS_UNREADABLE, ReadRecord
from penstock.gateway.web.operations import json_object
from penstock.gateway.web.parameters import header, number, path
from penstock.gateway.web.problem import invalid

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
# librdkafka does not accept more.
REPLICATION_FACTOR_MAX = 10_000

TOPIC = path("topic", "The topic's name.", pattern=r"^[a-zA-Z0-9._-]{1,249}$")
PARTITION = path("partition", "The partition's number.", type="integer", minimum=0, maximum=INT32_MAX)
GROUP = path("group", "The consumer group's name.")
IDEMPOTENCY_KEY = header("Idempotency-Key", "Requests with the same key publish only once.", maxLength=255)
TIMEOUT = number("timeout", "How many milliseconds to wait for the first record.", maximum=60_000, default=0)

# Sent with the answer to a request whose idempotency key was seen before.
REPLAYED = {"Idempotent-Replayed": "true"}

NULLABLE_TEXT = {"type": ["string", "null"]}
HEADERS_SHAPE = {"type": "object", "additionalProperties": {"type": "string"}}
# JSON numbers, or the same as a string: clients send ids either way.
ID_SHAPE: dict[str, object] = {
    "type": ["integer", "string", "null"],
    "minimum": 0,
    "maximum": INT32_MAX,
    "pattern": r"^\d{1,10}$",
}
OFFSET_SHAPE = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
PARTITION_SHAPE = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
TOPIC_SHAPE = {"type": "string", "pattern": r"^[a-zA-Z0-9._-]{1,249}$"}
DELIVERED_SHAPE = json_object(
    ["topic", "partition", "offset", "timestamp"],
    topic={"type": "string"},
    partition={"type": "integer"},
    offset={"type": "integer"},
    timestamp={"type": "integer"},
)


def show_delivered(delivered: Delivered) -> dict[str, object]:
    """Where a record was written, in the form of `DELIVERED_SHAPE`."""
    return {
        "topic": delivered.topic,
        "partition": delivered.partition,
        "offset": delivered.offset,
        "timestamp": delivered.timestamp_ms,
    }


def text_or_base64(value: bytes | None) -> tuple[str | None, bool]:
    """Bytes as text if they are valid UTF-8, else in base64; and whether base64 was used."""
    if value is None:
        return None, False
    try:
        return value.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(value).decode(), True


def id_number(value: int | str | None) -> int | None:
    """The number in a value of `ID_SHAPE`."""
    return None if value is None else min(int(value), INT32_MAX)


def put_text(shown: dict[str, object], name: str, value: bytes | None) -> None:
    """Put bytes under a name; `<name>_encoding` is base64 if they are not text."""
    text, encoded = text_or_base64(value)
    shown[name] = text
    if encoded:
        shown[f"{name}_encoding"] = "base64"


def show_headers(record: ReadRecord) -> dict[str, str | None]:
    """Headers by name; the last value of repeated names."""
    return {name: text_or_base64(value)[0] for name, value in record.headers}


def left_out(record: ReadRecord) -> dict[str, str]:
    """Why a record is shown without its contents or headers; empty for nearly all records."""
    if record.headers_unreadable:
        return {"unreadable": HEADERS_UNREADABLE}
    return {"unreadable": record.unreadable} if record.unreadable else {}


def from_base64(text: str, what: str, status: int = 400) -> bytes:
    """Decode base64; raises Problem if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(status, f"{what} is not base64", "encode it, or use another type") from None
