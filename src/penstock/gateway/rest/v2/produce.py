"""REST Proxy v2: producing to a topic or a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starlette.responses import Response

from penstock.gateway.kafka.publisher import OutgoingRecord
from penstock.gateway.registry.schema import JSON, StoredSchema
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import (
    ID_SHAPE,
    INT32_MAX,
    INT64_MAX,
    NULLABLE_TEXT,
    PARTITION,
    TOPIC,
    id_number,
)
from penstock.gateway.rest.v2.media import PLAIN_TYPES, PRODUCE_TYPES, SCHEMA_FORMATS, answer, produce_format, to_bytes
from penstock.gateway.rest.values.json_verbatim import exact_records
from penstock.gateway.rest.values.schema_codec import TYPE_OF_FORMAT
from penstock.gateway.rest.values.schema_values import PREFIX
from penstock.gateway.web.operations import Body, Call, Operation, Routes, closed_object, json_object
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v2: producing"
PART = {"description": "Base64 in the binary format, JSON in the others."}
TIMESTAMP = {"type": ["integer", "null"], "minimum": 0, "maximum": INT64_MAX}
PARTITION_RECORD = {"key": PART, "value": PART, "timestamp": TIMESTAMP}
TOPIC_RECORD = {**PARTITION_RECORD, "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX}}


def _body(record: Mapping[str, object]) -> Body:
    """A body with records of these fields. Unknown fields are rejected: a misspelt one would silently be dropped."""
    records = {
        "type": "array",
        "minItems": 1,
        "items": closed_object(**record),
    }
    shape = closed_object(
        ["records"],
        key_schema=NULLABLE_TEXT,
        key_schema_id=ID_SHAPE,
        value_schema=NULLABLE_TEXT,
        value_schema_id=ID_SHAPE,
        records=records,
    )
    return Body(shape, (*PRODUCE_TYPES, *PLAIN_TYPES), example={"records": [{"value": "aGVsbG8="}]})


OFFSETS = json_object(["offsets", "key_schema_id", "value_schema_id"])


routes: Routes[RestServices] = Routes(TAG, "/topics/{topic}", (TOPIC, PARTITION))


async def _schema_of(services: RestServices, call: Call, form: str, part: str) -> StoredSchema | None:
    body, used = call.body, any(record.get(part) is not None for record in call.body["records"])
    text, schema_id = body.get(f"{part}_schema"), id_number(body.get(f"{part}_schema_id"))
    if form not in SCHEMA_FORMATS or not used:
        return None
    if text is None and schema_id is None and part == "key":
        raise Problem(42201, "the records have keys, but no key schema is given", "send key_schema or its id")
    return await services.codec.schema(f"{call['topic']}-{part}", TYPE_OF_FORMAT[form], text, schema_id)


async def _encoded(
    services: RestServices, call: Call, form: str, part: str, schema: StoredSchema | None, exact: list[dict[str, bytes]]
) -> list[bytes | None]:
    """The encoded keys or values of all records."""
    values = [record.get(part) for record in call.body["records"]]
    if form == "json":
        return [None if value is None else each[part] for value, each in zip(values, exact, strict=True)]
    if schema is None:
        return [to_bytes(value, f"$.records[{index}].{part}") for index, value in enumerate(values)]
    encoded = iter(await services.codec.encode_all([(schema, value) for value in values if value is not None]))
    found: list[bytes | None] = []
    for index, value in enumerate(values):
        data = None if value is None else next(encoded)
        if isinstance(data, Problem):
            raise data
        if data is not None and schema.schema_type == JSON:
            # The parsed value was only checked; the original text is stored, so that numbers keep every digit.
            data = data[: PREFIX.size] + exact[index][part]
        found.append(data)
    return found


@routes.on(
    "POST /partitions/{partition}",
    "Produce records to a partition.",
    body=_body(PARTITION_RECORD),
    answers={200: OFFSETS},
)
@routes.on("POST", "Produce records to a topic.", body=_body(TOPIC_RECORD), answers={200: OFFSETS})
async def produce(services: RestServices, call: Call) -> Response:
    form = produce_format(call.request)
    schemas = {part: await _schema_of(services, call, form, part) for part in ("key", "value")}

    fixed = call.parameters.get("partition")
    exact = await services.bodies.work(exact_records, call.raw) if form in ("json", "jsonschema") else []
    keys = await _encoded(services, call, form, "key", schemas["key"], exact)
    values = await _encoded(services, call, form, "value", schemas["value"], exact)
    records = [
        OutgoingRecord(
            key,
            value,
            partition=_first(fixed, record.get("partition"), -1),
            timestamp_ms=record.get("timestamp") or 0,
        )
        for key, value, record in zip(keys, values, call.body["records"], strict=True)
    ]
    outcomes = await services.publisher.publish_all(call["topic"], records)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if len(failures) == len(outcomes) and failures[0].status in (404, 429):
        raise failures[0]
    offsets: list[dict[str, object]] = [
        {"partition": None, "offset": None, "error_code": outcome.code, "error": outcome.message}
        if isinstance(outcome, Problem)
        else {"partition": outcome.partition, "offset": outcome.offset, "error_code": None, "error": None}
        for outcome in outcomes
    ]
    ids = {f"{part}_schema_id": schema.id if schema is not None else None for part, schema in schemas.items()}
    return answer({"offsets": offsets, **ids})


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def operations(records_max: int) -> list[Operation[RestServices]]:
    """The operations, for up to `records_max` records per request."""
    return [replace(each, body=_limited(each.body, records_max)) for each in routes if each.body is not None]


def _limited(body: Body, records_max: int) -> Body:
    shape = body.schema or {}
    records = {**shape["properties"]["records"], "maxItems": records_max, "x-limit": "produce_records_max"}
    return replace(body, schema={**shape, "properties": {**shape["properties"], "records": records}})
