"""REST Proxy v2: producing to a topic or a partition."""

from __future__ import annotations

import copy
from typing import Any

from starlette.responses import Response

from penstock.gateway.kafka.publisher import OutgoingRecord, Publisher
from penstock.gateway.registry.schema import StoredSchema
from penstock.gateway.rest.schema_codec import TYPE_OF_FORMAT, SchemaCodec
from penstock.gateway.rest.shapes import INT32_MAX, INT64_MAX, PARTITION, TOPIC
from penstock.gateway.rest.v2_media import PLAIN_TYPES, PRODUCE_TYPES, SCHEMA_FORMATS, answer, produce_format, to_bytes
from penstock.gateway.web.operations import Body, Call, Operation
from penstock.gateway.web.problem import Problem
from penstock.gateway.work.budgets import DEFAULT_BUDGETS

TAG = "REST Proxy v2: producing"
NULLABLE_ID = {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX}
PRODUCE_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["records"],
    "properties": {
        "key_schema": {"type": ["string", "null"]},
        "key_schema_id": NULLABLE_ID,
        "value_schema": {"type": ["string", "null"]},
        "value_schema_id": NULLABLE_ID,
        "records": {
            "type": "array",
            "minItems": 1,
            "maxItems": DEFAULT_BUDGETS.produce_records_max,
            "x-limit": "produce_records_max",
            "items": {
                "type": "object",
                "properties": {
                    "key": {"description": "Base64 in the binary format, JSON in the others."},
                    "value": {"description": "Base64 in the binary format, JSON in the others."},
                    "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX},
                    "timestamp": {"type": ["integer", "null"], "minimum": 0, "maximum": INT64_MAX},
                },
            },
        },
    },
}
OFFSETS = {"type": "object", "required": ["offsets", "key_schema_id", "value_schema_id"]}


def v2_produce_operations(publisher: Publisher, codec: SchemaCodec, records_max: int) -> list[Operation]:
    """Producing, at most so many records at a time."""
    shape = copy.deepcopy(PRODUCE_BODY)
    shape["properties"]["records"]["maxItems"] = records_max
    body = Body(shape, (*PRODUCE_TYPES, *PLAIN_TYPES), example={"records": [{"value": "aGVsbG8="}]})

    async def schema_of(call: Call, form: str, part: str) -> StoredSchema | None:
        body, used = call.body, any(record.get(part) is not None for record in call.body["records"])
        text, schema_id = body.get(f"{part}_schema"), body.get(f"{part}_schema_id")
        if form not in SCHEMA_FORMATS or not used:
            return None
        if text is None and schema_id is None and part == "key":
            raise Problem(422, 42201, "records have keys but there is no key schema", "send key_schema or its id")
        return await codec.schema(f"{call['topic']}-{part}", TYPE_OF_FORMAT[form], text, schema_id)

    async def parts(call: Call, form: str, part: str, schemas: dict[str, StoredSchema | None]) -> list[bytes | None]:
        """The keys or the values of all records."""
        values, schema = [record.get(part) for record in call.body["records"]], schemas[part]
        if schema is None:
            return [to_bytes(form, value, f"$.records[{index}].{part}") for index, value in enumerate(values)]
        encoded = iter(await codec.encode_all([(schema, value) for value in values if value is not None]))
        found: list[bytes | None] = []
        for value in values:
            data = None if value is None else next(encoded)
            if isinstance(data, Problem):
                raise data
            found.append(data)
        return found

    async def produce(call: Call) -> Response:
        form = produce_format(call.request)
        schemas = {part: await schema_of(call, form, part) for part in ("key", "value")}

        fixed = call.parameters.get("partition")
        keys, values = await parts(call, form, "key", schemas), await parts(call, form, "value", schemas)
        records = [
            OutgoingRecord(
                key,
                value,
                partition=_first(fixed, record.get("partition"), -1),
                timestamp_ms=record.get("timestamp") or 0,
            )
            for key, value, record in zip(keys, values, call.body["records"], strict=True)
        ]
        outcomes = await publisher.publish_all(call["topic"], records)
        failures = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
        if len(failures) == len(outcomes) and failures[0].status in (404, 429):
            raise failures[0]
        offsets: list[dict[str, Any]] = [
            {"partition": None, "offset": None, "error_code": outcome.code, "error": outcome.message}
            if isinstance(outcome, Problem)
            else {"partition": outcome.partition, "offset": outcome.offset, "error_code": None, "error": None}
            for outcome in outcomes
        ]
        ids = {f"{part}_schema_id": schema.id if schema is not None else None for part, schema in schemas.items()}
        return answer({"offsets": offsets, **ids})

    return [
        Operation(
            "POST", "/topics/{topic}", produce, "Produce records to a topic.", TAG, (TOPIC,), body, {200: OFFSETS}
        ),
        Operation(
            "POST",
            "/topics/{topic}/partitions/{partition}",
            produce,
            "Produce records to a partition.",
            TAG,
            (TOPIC, PARTITION),
            body,
            {200: OFFSETS},
        ),
    ]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
