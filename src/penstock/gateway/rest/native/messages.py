"""`/topics/{topic}/publish`, `/subscribe`, `/ack`, `/nack` and `/extend`: one message at a time.

POST /topics/{topic}/publish                    {"key": "k", "value": "v", "headers": {"h": "x"}}
GET  /topics/{topic}/subscribe?group=g&offset=  → {"messageId": …, "key": "k", "value": "v", "attempt": 1, …}
POST /topics/{topic}/ack                        {"messageId": …}

Groups are share groups in the brokers, which know each message's holder: any gateway accepts any acknowledgement.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from starlette.responses import Response

from penstock.core.share.acknowledgements import AckType
from penstock.gateway.kafka.publisher import OutgoingRecord
from penstock.gateway.kafka.reader import offset_number
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.kafka.share.routes import RoutedDelivery
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import (
    DELIVERED_SHAPE,
    HEADERS_SHAPE,
    IDEMPOTENCY_KEY,
    NULLABLE_TEXT,
    REPLAYED,
    TOPIC,
    left_out,
    put_text,
    show_delivered,
    show_headers,
)
from penstock.gateway.rest.values.json_verbatim import exact_value
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, json_object
from penstock.gateway.web.parameters import number, query
from penstock.gateway.web.problem import Problem

TAG = "Topics and messages"
WAIT_MS = 10_000

PUBLISH_BODY = json_object(
    ["value"],
    key=NULLABLE_TEXT,
    value={"description": "Text; anything else is stored as JSON, null as a tombstone."},
    headers={**HEADERS_SHAPE, "type": ["object", "null"]},
)
PUBLISH = Body(PUBLISH_BODY, checked=False, example={"key": "order_123", "value": "hello", "headers": {"a": "b"}})
MESSAGE_SHAPE = json_object(
    ["messageId", "key", "value", "headers"],
    messageId={"type": "string"},
    key=NULLABLE_TEXT,
    value=NULLABLE_TEXT,
    attempt={
        "type": "integer",
        "description": "How often the group was given this message, counting this time.",
    },
    lockMs={"type": "integer", "description": "For how long the message is held for its receiver."},
)
MESSAGE_ID = {"messageId": {"type": "string", "maxLength": 1000, "description": "As it came with the message."}}
SETTLE_BODY = json_object(["messageId"], **MESSAGE_ID)
NACK_BODY = json_object(
    ["messageId"],
    **MESSAGE_ID,
    deadLetter={"type": "boolean", "description": "Reject it instead of delivering it again."},
)
EXAMPLE = {"messageId": "0-42-1.2f9c41d07be6a853-7d0b1b9c5c3e4d6f8a2b4c6d8e0f1a2b-b3JkZXJz"}
# Partition, offset, and for a message that was delivered to a group also the attempt, the incarnation of the leader
# that delivered it (an earlier gateway did not have that), the member, and the group.
_MESSAGE_ID = re.compile(
    r"([0-9]{1,10})-([0-9]{1,19})(?:-([0-9]{1,5})(?:\.([0-9a-f]{1,16}))?-([0-9a-f]{32})-([0-9A-Za-z_-]+))?"
)


def delivered_id(delivery: RoutedDelivery) -> str:
    """The messageId of a message that was delivered to a group."""
    group = base64.urlsafe_b64encode(delivery.group.encode()).decode().rstrip("=")
    attempt = str(delivery.attempt)
    if delivery.incarnation >= 0:
        attempt += f".{delivery.incarnation:x}"
    return f"{delivery.partition}-{delivery.offset}-{attempt}-{delivery.member_id}-{group}"


def parse_message_id(text: str) -> RoutedDelivery:
    """The delivery that a messageId identifies; raises Problem if it is invalid."""
    found = _MESSAGE_ID.fullmatch(text)
    try:
        if found is None or int(found[1]) >= 1 << 31 or int(found[2]) >= 1 << 63 or int(found[3] or 0) >= 1 << 15:
            raise ValueError
        incarnation = -1 if found[4] is None else int(found[4], 16)
        if incarnation >= 1 << 63:
            raise ValueError
        group = found[6] or ""
        name = base64.b64decode(group + "=" * (-len(group) % 4), b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise Problem(40002, f"{text[:80]!r} is not a messageId", "send the one that came with the message") from None
    if not name:
        raise Problem(
            40002, "this message was not delivered to a group", "send the messageId that `subscribe` returned"
        )
    return RoutedDelivery(name, found[5], int(found[1]), int(found[2]), int(found[3]), incarnation)


publish_routes: Routes[RestServices] = Routes(TAG, "/topics/{topic}", (TOPIC,))


@publish_routes.on("POST /publish", "Publish a message.", IDEMPOTENCY_KEY, body=PUBLISH, answers={200: DELIVERED_SHAPE})
async def publish(services: RestServices, call: Call) -> Response:
    topic = call["topic"]
    fields = await services.bodies.read(call.raw, PUBLISH, 400)
    record = record_of_body(
        fields, await services.bodies.work(exact_value, call.raw) if has_json_value(fields) else b""
    )
    delivered, again = await services.keys.once(
        f"publish {topic}", call["Idempotency-Key"], call.raw, lambda: services.publisher.publish(topic, record)
    )
    shown = {"messageId": f"{delivered.partition}-{delivered.offset}", **show_delivered(delivered)}
    return json_response(shown, headers=REPLAYED if again else None)


def has_json_value(body: Any) -> bool:
    """Whether the value of a publish request is stored as JSON: anything but strings and null."""
    return isinstance(body, dict) and not isinstance(body.get("value"), str | None)


def record_of_body(body: Any, json_value: bytes) -> OutgoingRecord:
    """The record in a publish request; `json_value` is the raw text of its value if it `has_json_value`.

    Checked by hand rather than by schema, because most requests take this path.
    """
    if not isinstance(body, dict) or "value" not in body:
        raise Problem(
            40002, "the body does not match the schema at $: `value` is required", 'send {"key": …, "value": …}'
        )
    key, value, headers = body.get("key"), body["value"], body.get("headers")
    if not (key is None or isinstance(key, str)):
        raise Problem(
            40002, "the body does not match the schema at $.key: it must be a string", "send a string, or leave it out"
        )
    if not (headers is None or (isinstance(headers, dict) and all(isinstance(x, str) for x in headers.values()))):
        raise Problem(
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
        raise Problem(40002, "the body has an unpaired surrogate", "send valid Unicode") from None


subscribe_routes: Routes[RestServices] = Routes(TAG, "/topics/{topic}", (TOPIC,))


@subscribe_routes.on(
    "GET /subscribe",
    "Get a share group's next message, or the one at an offset; 204 if there is none.",
    query("group", "The share group.", minLength=1, maxLength=249, default="default"),
    query(
        "offset",
        "Where a new group starts (earliest or latest), unless its settings contain it; a number reads the "
        "message at that offset again, for no group.",
        default="earliest",
    ),
    number("timeout", "How many milliseconds to wait.", maximum=60_000, default=WAIT_MS),
    answers={200: MESSAGE_SHAPE, 204: None},
)
async def subscribe(services: RestServices, call: Call) -> Response:
    topic, group = call["topic"], call["group"]
    count = await services.admin.partition_count(topic)
    start = call["offset"]
    if start not in ("earliest", "latest"):
        record = await replay(services, topic, count, offset_number(start), call["timeout"], call.caller)
        return Response(status_code=204) if record is None else json_response(show(record))
    found = await services.share_members.next(group, topic, start, call["timeout"] / 1000, call.caller)
    if found is None:
        return Response(status_code=204)
    member, taken = found
    if await has_gone(call):
        member.deliver(taken)
        return Response(status_code=204)
    message_id = delivered_id(member.delivery(taken))
    return json_response(
        {**show(taken.record), "messageId": message_id, "attempt": taken.attempt, "lockMs": taken.lock_ms}
    )


async def replay(
    services: RestServices, topic: str, count: int, offset: int, timeout_ms: int, caller: str
) -> ReadRecord | None:
    """The message at an offset, from the first partition that has one there."""
    for partition in range(count):
        marks = await services.readers.watermarks(topic, partition)
        if marks.beginning <= offset < marks.end or count == 1:
            found = await services.readers.read(topic, partition, offset, 1, timeout_ms=timeout_ms, caller=caller)
            return found[0] if found else None
    return None


async def settle(services: RestServices, call: Call, kind: AckType) -> int:
    topic = call["topic"]
    delivery = parse_message_id(call.body["messageId"])
    await services.admin.partition_count(topic)
    return await services.share_members.settle(topic, delivery, kind)


@subscribe_routes.on(
    "POST /ack",
    "Acknowledge a message, so that it is not delivered to the group again.",
    body=Body(SETTLE_BODY, example=EXAMPLE),
)
async def acknowledge(services: RestServices, call: Call) -> Response:
    await settle(services, call, AckType.ACCEPT)
    return json_response({"acknowledged": True, "messageId": call.body["messageId"]})


@subscribe_routes.on(
    "POST /nack",
    "Give a message back: it is delivered again, or becomes a dead letter.",
    body=Body(NACK_BODY, example=EXAMPLE),
)
async def release(services: RestServices, call: Call) -> Response:
    is_rejected = bool(call.body.get("deadLetter"))
    await settle(services, call, AckType.REJECT if is_rejected else AckType.RELEASE)
    return json_response({"messageId": call.body["messageId"], "deadLetter": is_rejected})


@subscribe_routes.on(
    "POST /extend",
    "Extend the lock of a message, for as long again from now.",
    body=Body(SETTLE_BODY, example=EXAMPLE),
)
async def extend(services: RestServices, call: Call) -> Response:
    lock_ms = await settle(services, call, AckType.RENEW)
    return json_response({"messageId": call.body["messageId"], "lockMs": lock_ms})


async def has_gone(call: Call) -> bool:
    """Whether the caller has closed its connection. The first message may be the request's empty body."""
    return await call.request.is_disconnected() or await call.request.is_disconnected()


def show(record: ReadRecord) -> dict[str, object]:
    """A message in the form that subscribers get."""
    shown: dict[str, object] = {"messageId": f"{record.partition}-{record.offset}"}
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
