"""`/topics/{topic}/publish`, `/subscribe` and `/ack`: one message at a time.

POST /topics/{topic}/publish                    {"key": "k", "value": "v", "headers": {"h": "x"}}
GET  /topics/{topic}/subscribe?group=g&offset=  → {"messageId": …, "key": "k", "value": "v", "headers": {…}}
POST /topics/{topic}/ack                        {"messageId": …}
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from starlette.responses import Response

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.publisher import OutgoingRecord, Publisher
from penstock.gateway.kafka.reader import Readers, offset_number
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.kafka.subscriptions import Subscriptions
from penstock.gateway.rest.shapes import (
    DELIVERED_SHAPE,
    HEADERS_SHAPE,
    NULLABLE_TEXT,
    TOPIC,
    left_out,
    put_text,
    show_headers,
)
from penstock.gateway.rest.values.json_verbatim import exact_value
from penstock.gateway.web.application import json_response
from penstock.gateway.web.body_reader import BodyReader
from penstock.gateway.web.operations import Body, Call, Operation
from penstock.gateway.web.parameters import header, number, query
from penstock.gateway.web.problem import Problem

TAG = "Topics and messages"
WAIT_MS = 10_000
REPLAYED = {"Idempotent-Replayed": "true"}
KEY = header("Idempotency-Key", "Requests with the same key publish only once.", maxLength=255)

PUBLISH_BODY = {
    "type": "object",
    "required": ["value"],
    "properties": {
        "key": NULLABLE_TEXT,
        "value": {"description": "Text; anything else is stored as JSON, null as a tombstone."},
        "headers": {**HEADERS_SHAPE, "type": ["object", "null"]},
    },
}
MESSAGE_SHAPE = {
    "type": "object",
    "required": ["messageId", "key", "value", "headers"],
    "properties": {"messageId": {"type": "string"}, "key": NULLABLE_TEXT, "value": NULLABLE_TEXT},
}
ACK_BODY = {
    "type": "object",
    "required": ["messageId"],
    "properties": {
        "messageId": {"type": "string", "maxLength": 1000},
        "group": {"type": "string", "description": "Only needed if the messageId does not contain a group."},
    },
}


class MessageId(NamedTuple):
    """The position of a message, and the group it was delivered to."""

    partition: int
    offset: int
    group: str = ""

    def __str__(self) -> str:
        group = base64.urlsafe_b64encode(self.group.encode()).decode().rstrip("=")
        return f"{self.partition}-{self.offset}" + (f"-{group}" if group else "")


def parse_message_id(text: str) -> MessageId:
    """Parse a message id; raises Problem if it is invalid."""
    partition, _, rest = text.partition("-")
    offset, _, group = rest.partition("-")
    try:
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise ValueError
        if int(partition) >= 1 << 31 or int(offset) >= 1 << 63:
            raise ValueError
        name = base64.b64decode(group + "=" * (-len(group) % 4), b"-_", validate=True).decode()
        return MessageId(int(partition), int(offset), name)
    except (ValueError, binascii.Error):
        raise Problem(
            400, 40002, f"{text[:80]!r} is not a messageId", "send the one that came with the message"
        ) from None


def publish_operations(publisher: Publisher, keys: IdempotencyKeys[Delivered], bodies: BodyReader) -> list[Operation]:
    """Operations that publish one message."""
    body = Body(PUBLISH_BODY, checked=False, example={"key": "order_123", "value": "hello", "headers": {"a": "b"}})

    async def publish(call: Call) -> Response:
        topic = call["topic"]
        fields = await bodies.read(call.raw, body, 400)
        record = record_of_body(fields, await bodies.work(exact_value, call.raw) if has_json_value(fields) else b"")
        delivered, again = await keys.once(
            f"publish {topic}", call["Idempotency-Key"], call.raw, lambda: publisher.publish(topic, record)
        )
        shown = {
            "messageId": str(MessageId(delivered.partition, delivered.offset)),
            "topic": topic,
            "partition": delivered.partition,
            "offset": delivered.offset,
            "timestamp": delivered.timestamp_ms,
        }
        return json_response(shown, headers=REPLAYED if again else None)

    return [
        Operation(
            "POST",
            "/topics/{topic}/publish",
            publish,
            "Publish a message.",
            TAG,
            (TOPIC, KEY),
            body,
            {200: DELIVERED_SHAPE},
        )
    ]


def has_json_value(body: Any) -> bool:
    """Whether the value of a publish request is stored as JSON: anything but strings and null."""
    return isinstance(body, dict) and not isinstance(body.get("value"), str | None)


def record_of_body(body: Any, json_value: bytes) -> OutgoingRecord:
    """The record in a publish request; `json_value` is the raw text of its value if it `has_json_value`.

    Checked by hand rather than by schema, because most requests take this path.
    """
    if not isinstance(body, dict) or "value" not in body:
        raise Problem(
            400, 40002, "the body does not match the schema at $: `value` is required", 'send {"key": …, "value": …}'
        )
    key, value, headers = body.get("key"), body["value"], body.get("headers")
    if not (key is None or isinstance(key, str)):
        raise Problem(
            400,
            40002,
            "the body does not match the schema at $.key: it must be a string",
            "send a string, or leave it out",
        )
    if not (headers is None or (isinstance(headers, dict) and all(isinstance(x, str) for x in headers.values()))):
        raise Problem(
            400,
            40002,
            "the body does not match the schema at $.headers: values must be strings",
            "send an object with string values",
        )
    try:
        stored = value.encode() if isinstance(value, str) else None if value is None else json_value
        return OutgoingRecord(
            None if key is None else key.encode(),
            stored,
            [(name, text.encode()) for name, text in headers.items()] if headers else (),
        )
    except UnicodeEncodeError:
        raise Problem(400, 40002, "the body has an unpaired surrogate", "send valid Unicode") from None


def subscribe_operations(
    admin: Admin, subscriptions: Subscriptions, readers: Readers, groups: Groups
) -> list[Operation]:
    """Operations that deliver messages one by one and acknowledge them."""

    async def subscribe(call: Call) -> Response:
        topic, group = call["topic"], call["group"]
        count = await admin.partition_count(topic)
        start = call["offset"]
        if start in ("earliest", "latest"):
            record = await subscriptions.next(group, topic, start, call["timeout"] / 1000, call.caller)
        else:
            record = await replay(topic, count, offset_number(start), call["timeout"], call.caller)
        return Response(status_code=204) if record is None else json_response(show(record, group))

    async def replay(topic: str, count: int, offset: int, timeout_ms: int, caller: str) -> ReadRecord | None:
        """The message at an offset, from the first partition that has one there."""
        for partition in range(count):
            marks = await readers.watermarks(topic, partition)
            if marks.beginning <= offset < marks.end or count == 1:
                found = await readers.read(topic, partition, offset, 1, timeout_ms=timeout_ms, caller=caller)
                return found[0] if found else None
        return None

    async def acknowledge(call: Call) -> Response:
        topic = call["topic"]
        place = parse_message_id(call.body["messageId"])
        group = place.group or call.body.get("group", "")
        if not group:
            raise Problem(400, 40002, "this messageId does not contain a group", "send `group` too")
        if place.partition >= await admin.partition_count(topic):
            raise Problem(
                404, 40402, f"topic {topic} has no partition {place.partition}", "send the messageId unchanged"
            )
        if not await subscriptions.acknowledge(group, topic, place.partition, place.offset):
            await groups.commit(group, topic, place.partition, place.offset + 1)
        return json_response({"acknowledged": True, "messageId": call.body["messageId"]})

    return [
        Operation(
            "GET",
            "/topics/{topic}/subscribe",
            subscribe,
            "Get a group's next message, or the one at an offset; 204 if there is none.",
            TAG,
            (
                TOPIC,
                query("group", "The consumer group.", minLength=1, maxLength=249, default="default"),
                query(
                    "offset",
                    "Where a new group starts (earliest or latest); a number replays from that offset.",
                    default="earliest",
                ),
                number("timeout", "How many milliseconds to wait.", maximum=60_000, default=WAIT_MS),
            ),
            answers={200: MESSAGE_SHAPE, 204: None},
        ),
        Operation(
            "POST",
            "/topics/{topic}/ack",
            acknowledge,
            "Acknowledge a message, so that it is not delivered to the group again.",
            TAG,
            (TOPIC,),
            Body(ACK_BODY, example={"messageId": "0-42-b3JkZXJz"}),
        ),
    ]


def show(record: ReadRecord, group: str) -> dict[str, Any]:
    """A message in the form that subscribers get."""
    shown: dict[str, Any] = {"messageId": str(MessageId(record.partition, record.offset, group))}
    put_text(shown, "key", record.key)
    put_text(shown, "value", record.value)
    return {
        **shown,
        "headers": show_headers(record),
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **left_out(record),
    }
