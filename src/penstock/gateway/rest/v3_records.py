"""REST Proxy v3: producing records, one request or many records in one."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response, StreamingResponse

from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.publisher import OutgoingRecord, Publisher
from penstock.gateway.rest.json_text import json_bytes
from penstock.gateway.rest.schema_codec import Encode, EncodingBatch, SchemaCodec
from penstock.gateway.rest.shapes import INT32_MAX, INT64_MAX, from_base64
from penstock.gateway.rest.v3_shapes import CLUSTER, TOPIC_NAME, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.bodies import check_shape
from penstock.gateway.web.body_work import Bodies
from penstock.gateway.web.operations import Body, Call, Operation, Validator
from penstock.gateway.web.parameters import header
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: records"
RECORDS_MAX = 10_000
BATCH_MAX = 1000
# Records that are prepared in one go, while nobody else's are.
AT_ONCE_MAX = 100
# The last moment that can be written down.
TIMESTAMP_MS_MAX = 253_402_300_799_999
TYPES = ("BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF")
SCHEMA_TYPES = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}
DATA_SHAPE = {
    "type": ["object", "null"],
    "properties": {
        "type": {"enum": [*TYPES, None]},
        "data": {},
        "schema": {"type": ["string", "null"]},
        "schema_id": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX},
        "schema_version": {"type": ["integer", "null"]},
        "subject": {"type": ["string", "null"]},
        "subject_name_strategy": {"type": ["string", "null"]},
    },
}
RECORD_SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "partition_id": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX},
        "headers": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "value": {"type": ["string", "null"]}},
            },
        },
        "key": DATA_SHAPE,
        "value": DATA_SHAPE,
        "timestamp": {
            "oneOf": [
                {"type": "null"},
                {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
                {"type": "string", "format": "date-time"},
            ]
        },
    },
}
BATCH_SHAPE = {
    "type": "object",
    "required": ["entries"],
    "properties": {
        "entries": {
            "type": "array",
            "minItems": 1,
            "maxItems": BATCH_MAX,
            "items": {
                **RECORD_SHAPE,
                "required": ["id"],
                "properties": {
                    **RECORD_SHAPE["properties"],
                    "id": {"type": "string", "minLength": 1, "maxLength": 80},
                },
            },
        }
    },
}
RECORD = Validator(RECORD_SHAPE)
EXAMPLE = {"value": {"type": "JSON", "data": {"order_id": "order_123"}}}


def v3_record_operations(
    publisher: Publisher, codec: SchemaCodec, keys: IdempotencyKeys[Delivered], v3: V3, bodies: Bodies
) -> list[Operation]:
    """Producing."""

    async def outgoing(topic: str, body: dict[str, Any], encode: Encode) -> OutgoingRecord:
        return OutgoingRecord(
            await part(topic, "key", body.get("key"), encode),
            await part(topic, "value", body.get("value"), encode),
            [
                (each["name"], None if each.get("value") is None else from_base64(each["value"], "a header's value"))
                for each in body.get("headers") or ()
            ],
            -1 if body.get("partition_id") is None else body["partition_id"],
            timestamp_of(body.get("timestamp")),
        )

    async def part(topic: str, name: str, data: dict[str, Any] | None, encode: Encode) -> bytes | None:
        if data is None or data.get("data") is None:
            return None
        kind, value = data.get("type"), data["data"]
        named = data.get("schema") is not None or data.get("schema_id") is not None or data.get("subject") is not None
        if kind in SCHEMA_TYPES or (kind is None and named):
            subject = data.get("subject") or f"{topic}-{name}"
            schema_type = SCHEMA_TYPES.get(kind or "AVRO", "AVRO")
            schema = await codec.schema(subject, schema_type, data.get("schema"), data.get("schema_id"))
            return await encode(schema, value)
        if kind == "JSON":
            return json_bytes(value)
        if not isinstance(value, str):
            raise Problem(400, 40002, f"$.{name}.data is not text", "send text, or use the type JSON")
        return value.encode("utf-8", "replace") if kind == "STRING" else from_base64(value, f"$.{name}.data")

    def shown(topic: str, record: OutgoingRecord, body: dict[str, Any], delivered: Delivered) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "error_code": 200,
            "cluster_id": v3.cluster_id,
            "topic_name": topic,
            "partition_id": delivered.partition,
            "offset": delivered.offset,
            "timestamp": _iso(delivered.timestamp_ms),
        }
        for name, data in (("key", record.key), ("value", record.value)):
            if data is not None:
                answer[name] = {"type": (body.get(name) or {}).get("type") or "BINARY", "size": len(data)}
        return answer

    async def produce_one(topic: str, body: dict[str, Any], key: str | None, raw: bytes) -> dict[str, Any]:
        record = await outgoing(topic, body, codec.encode)
        delivered, _ = await keys.once(f"v3 {topic}", key, raw, lambda: publisher.publish(topic, record))
        return shown(topic, record, body, delivered)

    async def produce(call: Call) -> Response:
        v3.check(call)
        sent = await bodies.values(call.raw, RECORDS_MAX)
        if len(sent) == 1:
            check_shape(sent[0], RECORD, 400)
            return json_response(await produce_one(call["topic_name"], sent[0], call["Idempotency-Key"], call.raw))
        # Many values in one body are answered one by one: each may work or not.
        outcomes = await _many(call["topic_name"], sent)
        answers = [outcome.as_json() if isinstance(outcome, Problem) else outcome for outcome in outcomes]
        return StreamingResponse(_lines(answers), media_type="application/json")

    async def attempt(topic: str, body: Any, encode: Encode) -> OutgoingRecord | Problem:
        try:
            check_shape(body, RECORD, 400)
            return await outgoing(topic, body, encode)
        except Problem as problem:
            return problem

    async def _many(topic: str, bodies: list[Any]) -> list[dict[str, Any] | Problem]:
        records: list[OutgoingRecord | Problem] = []
        for start in range(0, len(bodies), AT_ONCE_MAX):
            together = bodies[start : start + AT_ONCE_MAX]
            encode = EncodingBatch(codec).encode
            records += await asyncio.gather(*(attempt(topic, body, encode) for body in together))
        good = [record for record in records if isinstance(record, OutgoingRecord)]
        outcomes = iter(await publisher.publish_all(topic, good) if good else [])
        found: list[dict[str, Any] | Problem] = []
        for body, record in zip(bodies, records, strict=True):
            if isinstance(record, Problem):
                found.append(record)
                continue
            outcome = next(outcomes)
            found.append(outcome if isinstance(outcome, Problem) else shown(topic, record, body, outcome))
        return found

    async def produce_batch(call: Call) -> Response:
        v3.check(call)
        entries = call.body["entries"]
        successes, failures = [], []
        for entry, outcome in zip(entries, await _many(call["topic_name"], entries), strict=True):
            if isinstance(outcome, Problem):
                failures.append({"id": entry["id"], **outcome.as_json()})
            else:
                successes.append({"id": entry["id"], **outcome})
        return json_response({"successes": successes, "failures": failures}, 207)

    path = "/v3/clusters/{cluster_id}/topics/{topic_name}/records"
    place = (CLUSTER, TOPIC_NAME)
    key = header("Idempotency-Key", "The same key never publishes twice.", maxLength=255)
    return [
        Operation(
            "POST",
            path,
            produce,
            "Produce records: one JSON value, or several one after the other.",
            TAG,
            (*place, key),
            Body(RECORD_SHAPE, checked=False, example=EXAMPLE),
        ),
        Operation(
            "POST",
            f"{path}:batch",
            produce_batch,
            "Produce many records.",
            TAG,
            place,
            Body(BATCH_SHAPE, example={"entries": [{"id": "1", **EXAMPLE}]}),
            {207: {"type": "object", "required": ["successes", "failures"]}},
        ),
    ]


async def _lines(answers: list[dict[str, Any]]) -> Any:
    for answer in answers:
        yield json.dumps(answer, separators=(",", ":")) + "\r\n"


def timestamp_of(value: int | str | None) -> int:
    """Milliseconds since 1970 of what a caller wrote, 0 for now."""
    if value is None or isinstance(value, int):
        return value or 0
    try:
        moment = datetime.fromisoformat(value)
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Problem(400, 40002, f"{value[:40]!r} is not a time", "use 2026-01-31T12:00:00Z") from None


def _iso(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=min(timestamp_ms, TIMESTAMP_MS_MAX))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
