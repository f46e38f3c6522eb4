"""`/api/v1`: produce arbitrary bytes, and read records by partition and offset.

POST /api/v1/topics/{topic}/messages                       X-Partition-Key: order_123, any body
GET  /api/v1/topics/{topic}/partitions/{partition}/messages?offset=…&limit=…
POST /api/v1/consumer-groups/{group}/offsets               {"topic": …, "partition": …, "offset": …}
"""

from __future__ import annotations

import base64

from starlette.responses import Response

from penstock.gateway.kafka.publisher import OutgoingRecord
from penstock.gateway.kafka.reader import offset_number
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import (
    DELIVERED_SHAPE,
    GROUP,
    IDEMPOTENCY_KEY,
    OFFSET_SHAPE,
    PARTITION,
    PARTITION_SHAPE,
    REPLAYED,
    TIMEOUT,
    TOPIC,
    TOPIC_SHAPE,
    left_out,
    put_text,
    show_delivered,
    show_headers,
)
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, json_object
from penstock.gateway.web.parameters import header, number, query
from penstock.model.ids import TopicPartition

TAG = "Messages (v1)"
LIMIT_MAX = 10_000
HEADER_PREFIX = "x-header-"
OFFSET_BODY = json_object(
    ["topic", "partition", "offset"], topic=TOPIC_SHAPE, partition=PARTITION_SHAPE, offset=OFFSET_SHAPE
)
MESSAGES_SHAPE = json_object(
    ["messages", "next_offset"],
    messages={
        "type": "array",
        "items": json_object(
            ["offset", "key", "value", "timestamp", "headers"],
            value={"type": ["string", "null"], "contentEncoding": "base64"},
        ),
    },
    next_offset={"type": "integer"},
)


routes: Routes[RestServices] = Routes(TAG, "/api/v1", (TOPIC, PARTITION, GROUP))


@routes.on(
    "POST /topics/{topic}/messages",
    "Publish the request body as it is. Request headers named X-Header-… become record headers.",
    header("X-Partition-Key", "The record's key, which determines its partition."),
    IDEMPOTENCY_KEY,
    body=Body(None, ("*/*",), required=False),
    answers={200: DELIVERED_SHAPE},
)
async def produce(services: RestServices, call: Call) -> Response:
    topic, key = call["topic"], call["X-Partition-Key"]
    headers = [
        (name[len(HEADER_PREFIX) :], value.encode("latin-1"))
        for name, value in call.request.headers.items()
        if name.startswith(HEADER_PREFIX) and len(name) > len(HEADER_PREFIX)
    ]
    record = OutgoingRecord(None if key is None else key.encode("latin-1"), call.raw, headers)
    identity = (key or "").encode("latin-1", "replace") + b"\0" + call.raw
    delivered, again = await services.keys.once(
        f"messages {topic}", call["Idempotency-Key"], identity, lambda: services.publisher.publish(topic, record)
    )
    return json_response(show_delivered(delivered), headers=REPLAYED if again else None)


@routes.on(
    "GET /topics/{topic}/partitions/{partition}/messages",
    "Read a partition's records; values are in base64.",
    query("offset", "Where to start: a number, earliest or latest; the group's committed offset if omitted."),
    number("limit", "How many records at most.", 1, maximum=LIMIT_MAX, default=100),
    TIMEOUT,
    header("X-Consumer-Group", "The group whose committed offset is used if no offset is given."),
    answers={200: MESSAGES_SHAPE},
)
async def read(services: RestServices, call: Call) -> Response:
    topic, partition = place = TopicPartition(call["topic"], call["partition"])
    await services.admin.check_partition(topic, partition)
    start = call["offset"]
    if start is None and call["X-Consumer-Group"]:
        committed = await services.groups.committed(call["X-Consumer-Group"])
        start = str(committed[place]) if place in committed else "earliest"
    offset = offset_number(start if start is not None else "earliest")
    records = await services.readers.read(
        topic, partition, offset, call["limit"], timeout_ms=call["timeout"], caller=call.caller
    )
    if records:
        next_offset = records[-1].offset + 1
    else:
        marks = await services.readers.watermarks(topic, partition)
        next_offset = min(max(offset, marks.beginning), marks.end) if offset >= 0 else marks.end
    return json_response({"messages": [show(record) for record in records], "next_offset": next_offset})


@routes.on(
    "POST /consumer-groups/{group}/offsets",
    "Commit the next offset that a group reads.",
    body=Body(OFFSET_BODY, example={"topic": "orders", "partition": 7, "offset": 1234567}),
    answers={200: json_object(["committed"])},
)
async def commit(services: RestServices, call: Call) -> Response:
    topic, partition, offset = call.body["topic"], call.body["partition"], call.body["offset"]
    await services.admin.check_partition(topic, partition)
    await services.groups.commit(call["group"], {TopicPartition(topic, partition): offset})
    return json_response({"committed": True})


def show(record: ReadRecord) -> dict[str, object]:
    """A record with its value in base64."""
    shown: dict[str, object] = {"offset": record.offset}
    put_text(shown, "key", record.key)
    shown["value"] = None if record.value is None else base64.b64encode(record.value).decode()
    shown["timestamp"] = record.timestamp_ms
    shown["headers"] = show_headers(record)
    return {**shown, **left_out(record)}
