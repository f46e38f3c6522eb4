"""REST Proxy v3: producing records, one or many per request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response, StreamingResponse

from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.publisher import OutgoingRecord
from penstock.gateway.registry.schema import JSON
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import ID_SHAPE, IDEMPOTENCY_KEY, INT32_MAX, INT64_MAX, from_base64
from penstock.gateway.rest.v3.schemas import FORMATS, STRATEGIES
from penstock.gateway.rest.v3.shapes import v3_routes
from penstock.gateway.rest.values.json_verbatim import exact_parts
from penstock.gateway.rest.values.schema_codec import Encode, EncodingBatch
from penstock.gateway.rest.values.schema_values import PREFIX
from penstock.gateway.web.application import json_response
from penstock.gateway.web.bodies import check_shape
from penstock.gateway.web.operations import Body, Call, Routes, Validator, closed_object, json_object
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: records"
RECORDS_MAX = 10_000
BATCH_MAX = 1000
# How many records are prepared before other requests get their turn.
AT_ONCE_MAX = 100
# The latest timestamp that ISO 8601 can represent.
TIMESTAMP_MS_MAX = 253_402_300_799_999
TYPES = ("BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF")
DATA_SHAPE = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": [*TYPES, None]},
        "data": {},
        "schema": {"type": ["string", "null"]},
        "schema_id": ID_SHAPE,
        "schema_version": ID_SHAPE,
        "subject": {"type": ["string", "null"]},
        "subject_name_strategy": {"enum": [*STRATEGIES, None]},
    },
}
# Unknown fields are rejected: a misspelt one would silently be dropped.
RECORD_SHAPE = closed_object(
    partition_id={"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX},
    headers={
        "type": ["array", "null"],
        "items": closed_object(["name"], name={"type": "string"}, value={"type": ["string", "null"]}),
    },
    key=DATA_SHAPE,
    value=DATA_SHAPE,
    timestamp={
        "oneOf": [
            {"type": "null"},
            {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
            {"type": "string", "format": "date-time"},
        ]
    },
)
BATCH_SHAPE = json_object(
    ["entries"],
    entries={
        "type": "array",
        "minItems": 1,
        "maxItems": BATCH_MAX,
        "items": closed_object(
            ["id"], **RECORD_SHAPE["properties"], id={"type": "string", "minLength": 1, "maxLength": 80}
        ),
    },
)
RECORD = Validator(RECORD_SHAPE)
# A record's `data` by `key` and `value`, as JSON text with every digit that was sent.
Exact = dict[str, bytes]
# A record, and the response's fields about its key and value.
Outgoing = tuple[OutgoingRecord, dict[str, object]]
EXAMPLE = {"value": {"type": "JSON", "data": {"order_id": "order_123"}}}


routes: Routes[RestServices] = v3_routes(TAG, "/topics/{topic_name}/records")


async def outgoing(services: RestServices, topic: str, body: dict[str, Any], exact: Exact, encode: Encode) -> Outgoing:
    key, shown_key = await part(services, topic, "key", body.get("key"), exact, encode)
    value, shown_value = await part(services, topic, "value", body.get("value"), exact, encode)
    record = OutgoingRecord(
        key,
        value,
        [
            (each["name"], None if each.get("value") is None else from_base64(each["value"], "a header's value"))
            for each in body.get("headers") or ()
        ],
        -1 if body.get("partition_id") is None else body["partition_id"],
        timestamp_of(body.get("timestamp")),
    )
    parts = {"key": shown_key, "value": shown_value}
    return record, {name: shown for name, shown in parts.items() if shown is not None}


async def part(
    services: RestServices, topic: str, name: str, data: dict[str, Any] | None, exact: Exact, encode: Encode
) -> tuple[bytes, dict[str, object]] | tuple[None, None]:
    if data is None or data.get("data") is None:
        return None, None
    schema = await services.produce_schemas.find(topic, name, data)
    if schema is None:
        encoded = exact[name] if data.get("type") == "JSON" else _plain(name, data)
        return encoded, {"type": data.get("type") or "BINARY", "size": len(encoded)}
    encoded = await encode(schema, data["data"])
    if schema.schema_type == JSON:
        # The parsed value was only checked; the original text is stored, so that numbers keep every digit.
        encoded = encoded[: PREFIX.size] + exact[name]
    return encoded, {
        "type": FORMATS[schema.schema_type],
        "subject": schema.subject,
        "schema_id": schema.id,
        "schema_version": schema.version,
        "size": len(encoded),
    }


def shown(services: RestServices, topic: str, parts: dict[str, object], delivered: Delivered) -> dict[str, object]:
    return {
        "error_code": 200,
        "cluster_id": services.v3.cluster_id,
        "topic_name": topic,
        "partition_id": delivered.partition,
        "offset": delivered.offset,
        "timestamp": _iso(delivered.timestamp_ms),
        **parts,
    }


async def produce_one(
    services: RestServices, topic: str, body: dict[str, Any], exact: Exact, key: str | None, raw: bytes
) -> dict[str, object]:
    record, parts = await outgoing(services, topic, body, exact, services.codec.encode)
    delivered, _ = await services.keys.once(f"v3 {topic}", key, raw, lambda: services.publisher.publish(topic, record))
    return shown(services, topic, parts, delivered)


@routes.on(
    "POST",
    "Produce records: one JSON value, or several concatenated ones.",
    IDEMPOTENCY_KEY,
    body=Body(RECORD_SHAPE, checked=False, example=EXAMPLE),
)
async def produce(services: RestServices, call: Call) -> Response:
    sent = await services.bodies.values(call.raw, RECORDS_MAX)
    exact: list[Exact] = await services.bodies.work(exact_parts, call.raw)
    if len(sent) == 1:
        check_shape(sent[0], RECORD, 400)
        answer = await produce_one(services, call["topic_name"], sent[0], exact[0], call["Idempotency-Key"], call.raw)
        return json_response(answer)
    # Several values in one body are answered one by one: each may succeed or fail.
    outcomes = await _many(services, call["topic_name"], list(zip(sent, exact, strict=True)))
    answers = [outcome.as_json() if isinstance(outcome, Problem) else outcome for outcome in outcomes]
    return StreamingResponse(_lines(answers), media_type="application/json")


async def attempt(services: RestServices, topic: str, body: Any, exact: Exact, encode: Encode) -> Outgoing | Problem:
    try:
        check_shape(body, RECORD, 400)
        return await outgoing(services, topic, body, exact, encode)
    except Problem as problem:
        return problem


async def _many(
    services: RestServices, topic: str, bodies: list[tuple[object, Exact]]
) -> list[dict[str, object] | Problem]:
    records: list[Outgoing | Problem] = []
    for start in range(0, len(bodies), AT_ONCE_MAX):
        together = bodies[start : start + AT_ONCE_MAX]
        encode = EncodingBatch(services.codec).encode
        records += await asyncio.gather(*(attempt(services, topic, body, exact, encode) for body, exact in together))
    good = [record[0] for record in records if not isinstance(record, Problem)]
    outcomes = iter(await services.publisher.publish_all(topic, good) if good else [])
    found: list[dict[str, object] | Problem] = []
    for record in records:
        if isinstance(record, Problem):
            found.append(record)
            continue
        outcome = next(outcomes)
        found.append(outcome if isinstance(outcome, Problem) else shown(services, topic, record[1], outcome))
    return found


@routes.on(
    "POST :batch",
    "Produce many records.",
    body=Body(BATCH_SHAPE, example={"entries": [{"id": "1", **EXAMPLE}]}),
    answers={207: json_object(["successes", "failures"])},
)
async def produce_batch(services: RestServices, call: Call) -> Response:
    entries = call.body["entries"]
    exact: list[Exact] = await services.bodies.work(exact_parts, call.raw, "entries")
    records = [{name: field for name, field in entry.items() if name != "id"} for entry in entries]
    outcomes = await _many(services, call["topic_name"], list(zip(records, exact, strict=True)))
    successes, failures = [], []
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, Problem):
            failures.append({"id": entry["id"], **outcome.as_json()})
        else:
            successes.append({"id": entry["id"], **outcome})
    return json_response({"successes": successes, "failures": failures}, 207)


def _plain(name: str, data: dict[str, Any]) -> bytes:
    """The bytes of a string, or of base64 data."""
    value = data["data"]
    if not isinstance(value, str):
        raise Problem(40002, f"$.{name}.data is not a string", "send a string, or use the type JSON")
    return value.encode("utf-8", "replace") if data.get("type") == "STRING" else from_base64(value, f"$.{name}.data")


async def _lines(answers: list[dict[str, object]]) -> AsyncIterator[str]:
    for answer in answers:
        yield json.dumps(answer, separators=(",", ":")) + "\r\n"


def timestamp_of(value: int | str | None) -> int:
    """A caller's timestamp in milliseconds since 1970; 0 for now."""
    if value is None or isinstance(value, int):
        return value or 0
    try:
        moment = datetime.fromisoformat(value)
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Problem(40002, f"{value[:40]!r} is not a time", "use 2026-01-31T12:00:00Z") from None


def _iso(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=min(timestamp_ms, TIMESTAMP_MS_MAX))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
