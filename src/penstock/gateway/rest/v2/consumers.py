"""REST Proxy v2: consumer instances, which are group members controlled over HTTP.

An instance lives in the gateway that created it, so `base_uri` points to that gateway.
"""

from __future__ import annotations

import uuid
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
from starlette.responses import Response

from penstock.gateway.kafka.consumer_instances import Instance
from penstock.gateway.kafka.topic_pattern import PatternUnusable
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import GROUP, OFFSET_SHAPE, PARTITION_SHAPE, TOPIC_SHAPE
from penstock.gateway.rest.v2.media import FORMATS, PLAIN_TYPES, V2_TYPE, accepted_format, answer, nothing
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Routes, closed_object
from penstock.gateway.web.parameters import number, path
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v2: consumers"
BASE = "/consumers/{group}"
INSTANCE = path("instance", "The consumer instance's name.")
REQUEST_TIMEOUT_MS = 1000
RECORDS_MAX = 10_000

NAME_SHAPE = {"type": ["string", "null"], "pattern": r"^[a-zA-Z0-9._-]{1,200}$"}
INSTANCE_BODY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": NAME_SHAPE,
        "id": NAME_SHAPE,
        "format": {"enum": [*FORMATS, None]},
        "auto.offset.reset": {"enum": ["earliest", "latest", "none", None]},
        "auto.commit.enable": {"enum": ["true", "false", True, False, None]},
        "fetch.min.bytes": {"type": ["string", "integer", "null"], "pattern": r"^\d{1,9}$", "minimum": 1},
        "consumer.request.timeout.ms": {"type": ["string", "integer", "null"], "pattern": r"^\d{1,9}$", "minimum": 0},
    },
}
PARTITION_FIELDS = {"topic": TOPIC_SHAPE, "partition": PARTITION_SHAPE}
PARTITIONS_BODY = closed_object(
    ["partitions"],
    partitions={
        "type": "array",
        "maxItems": 10_000,
        "items": closed_object(["topic", "partition"], **PARTITION_FIELDS),
    },
)
OFFSETS_BODY = closed_object(
    offsets={
        "type": ["array", "null"],
        "maxItems": 10_000,
        "items": closed_object(
            ["topic", "partition", "offset"],
            **PARTITION_FIELDS,
            offset={**OFFSET_SHAPE, "maximum": (1 << 62)},
            metadata={"type": ["string", "null"], "maxLength": 4096},
        ),
    }
)
SUBSCRIPTION_BODY = closed_object(
    topics={"type": ["array", "null"], "items": TOPIC_SHAPE, "maxItems": 1000},
    topic_pattern={"type": ["string", "null"], "minLength": 1, "maxLength": 500},
)


routes: Routes[RestServices] = Routes(TAG, BASE, (GROUP, INSTANCE), answer_type=V2_TYPE)


def _instance_of(services: RestServices, call: Call) -> Instance:
    found = services.instances.get(call["group"], call["instance"])
    if found is None:
        raise Problem(40403, f"group {call['group']} has no instance {call['instance']}", "POST /consumers/{group}")
    return found


@routes.on("POST", "Create a consumer instance.", body=Body(INSTANCE_BODY, PLAIN_TYPES, required=False))
async def create(services: RestServices, call: Call) -> Response:
    body = call.body or {}
    name = body.get("name") or body.get("id") or f"rest-consumer-{uuid.uuid4()}"
    reset = {"none": "error", None: "latest"}.get(body.get("auto.offset.reset"), body.get("auto.offset.reset"))
    options = {
        "format": body.get("format") or "binary",
        "auto_commit": body.get("auto.commit.enable") not in ("false", False),
        "timeout_ms": int(body.get("consumer.request.timeout.ms") or REQUEST_TIMEOUT_MS),
    }
    properties: dict[str, object] = {"auto.offset.reset": reset}
    if body.get("fetch.min.bytes") not in (None, "-1"):
        properties["fetch.min.bytes"] = max(1, int(body["fetch.min.bytes"]))
    services.instances.create(call["group"], name, options, properties, call.caller)
    base = str(call.request.base_url).rstrip("/")
    uri = f"{base}/consumers/{call['group']}/instances/{name}"
    return answer({"instance_id": name, "base_uri": uri})


@routes.on("DELETE /instances/{instance}", "Delete a consumer instance.", answers=NO_CONTENT)
async def delete(services: RestServices, call: Call) -> Response:
    await services.instances.remove(_instance_of(services, call))
    return nothing()


@routes.on(
    "POST /instances/{instance}/subscription",
    "Subscribe to topics.",
    body=Body(SUBSCRIPTION_BODY, PLAIN_TYPES),
    answers=NO_CONTENT,
)
async def subscribe(services: RestServices, call: Call) -> Response:
    instance = _instance_of(services, call)
    topics, pattern = call.body.get("topics") or [], call.body.get("topic_pattern")
    if bool(topics) is bool(pattern):
        raise Problem(42204, "either topics or topic_pattern is required", "send one of the two")
    if instance.manual:
        raise Problem(40903, "this instance has manually assigned partitions", "delete the assignment first")
    try:
        if topics:
            await services.instances.use(instance, lambda consumer: consumer.subscribe(topics))
        else:
            await services.instances.use(instance, lambda consumer: consumer.subscribe_pattern(pattern))
    except PatternUnusable as error:
        raise Problem(42204, f"the topic_pattern {pattern!r} cannot be used", str(error)) from None
    instance.subscribed = True
    return nothing()


@routes.on("GET /instances/{instance}/subscription", "Show the subscription.")
async def subscription(services: RestServices, call: Call) -> Response:
    found = await services.instances.use(_instance_of(services, call), lambda consumer: consumer.subscription())
    return answer({"topics": found})


@routes.on("DELETE /instances/{instance}/subscription", "Unsubscribe from all topics.", answers=NO_CONTENT)
async def unsubscribe(services: RestServices, call: Call) -> Response:
    instance = _instance_of(services, call)
    instance.subscribed = False
    await services.instances.use(instance, lambda consumer: consumer.unsubscribe())
    return nothing()


@routes.on(
    "GET /instances/{instance}/records",
    "Get the next records.",
    number("timeout", "How many milliseconds to wait.", maximum=60_000),
    number("max_bytes", "How many bytes at most.", -1),
    answer_type="application/vnd.kafka.binary.v2+json",
)
async def records(services: RestServices, call: Call) -> Response:
    instance = _instance_of(services, call)
    form = accepted_format(call.request, instance.options["format"])
    if form != instance.options["format"]:
        raise Problem(
            40601,
            f"this instance reads the format {instance.options['format']}, not {form}",
            "accept that format, or create another instance",
        )
    timeout_ms = instance.options["timeout_ms"] if call["timeout"] is None else call["timeout"]
    bytes_max = min(call["max_bytes"] or services.settings.read_bytes_max, services.settings.read_bytes_max)
    patience_s = min(timeout_ms, services.settings.poll_timeout_ms_max) / 1000
    found = await services.instances.use(instance, lambda consumer: consumer.poll(RECORDS_MAX, bytes_max, patience_s))
    try:
        await services.instances.check_readable(found)
        shown = await services.codec.v2(found, form)
    except Problem:
        # These records are not lost: they are returned again until the caller seeks past them or reads them as
        # binary.
        await services.instances.use(instance, lambda consumer: consumer.put_back(found))
        raise
    if found and instance.options["auto_commit"]:
        await services.instances.use(instance, lambda consumer: consumer.commit(None))
    return Response(shown, media_type=f"application/vnd.kafka.{form}.v2+json")


position_routes: Routes[RestServices] = Routes(
    TAG, f"{BASE}/instances/{{instance}}", (GROUP, INSTANCE), answer_type=V2_TYPE
)


@position_routes.on(
    "POST /assignments", "Assign partitions manually.", body=Body(PARTITIONS_BODY, PLAIN_TYPES), answers=NO_CONTENT
)
async def assign(services: RestServices, call: Call) -> Response:
    instance = _instance_of(services, call)
    if instance.subscribed:
        raise Problem(40903, "this instance is subscribed to topics", "delete the subscription first")
    partitions = _partitions(call.body)
    instance.manual = bool(partitions)
    await services.instances.use(instance, lambda consumer: consumer.assign(partitions))
    return nothing()


@position_routes.on("GET /assignments", "Show the assigned partitions.")
async def assignment(services: RestServices, call: Call) -> Response:
    found = await services.instances.use(_instance_of(services, call), lambda consumer: consumer.assignment())
    return answer({"partitions": [{"topic": topic, "partition": number} for topic, number in found]})


@position_routes.on(
    "POST /positions", "Seek to the given offsets.", body=Body(OFFSETS_BODY, PLAIN_TYPES), answers=NO_CONTENT
)
async def seek(services: RestServices, call: Call) -> Response:
    offsets = [(each["topic"], each["partition"], each["offset"]) for each in call.body.get("offsets") or ()]
    await _seek_all(services, call, offsets)
    return nothing()


@position_routes.on(
    "POST /positions/beginning",
    "Seek to the beginning.",
    body=Body(PARTITIONS_BODY, PLAIN_TYPES),
    answers=NO_CONTENT,
)
async def seek_beginning(services: RestServices, call: Call) -> Response:
    await _seek_all(services, call, [(*partition, OFFSET_BEGINNING) for partition in _partitions(call.body)])
    return nothing()


@position_routes.on(
    "POST /positions/end", "Seek to the end.", body=Body(PARTITIONS_BODY, PLAIN_TYPES), answers=NO_CONTENT
)
async def seek_end(services: RestServices, call: Call) -> Response:
    await _seek_all(services, call, [(*partition, OFFSET_END) for partition in _partitions(call.body)])
    return nothing()


async def _seek_all(services: RestServices, call: Call, offsets: list[tuple[str, int, int]]) -> None:
    def work(consumer: Any) -> None:
        assigned = set(consumer.assignment())
        for topic, partition, _ in offsets:
            if (topic, partition) not in assigned:
                raise Problem(40903, f"partition {partition} of {topic} is not assigned", "assign it, or read first")
        consumer.seek(offsets)

    await services.instances.use(_instance_of(services, call), work)


@position_routes.on("POST /offsets", "Commit offsets.", body=Body(OFFSETS_BODY, PLAIN_TYPES, required=False))
async def commit(services: RestServices, call: Call) -> Response:
    listed = (call.body or {}).get("offsets") or ()
    # v2 names the last record that was processed; Kafka stores the next one to read.
    offsets = [(each["topic"], each["partition"], each["offset"] + 1) for each in listed] or None
    notes = {(each["topic"], each["partition"]): each.get("metadata") or "" for each in listed}
    await services.instances.use(_instance_of(services, call), lambda consumer: consumer.commit(offsets, notes))
    return answer({})


@position_routes.on("GET /offsets", "Show committed offsets.", body=Body(PARTITIONS_BODY, PLAIN_TYPES, required=False))
async def committed(services: RestServices, call: Call) -> Response:
    partitions = _partitions(call.body or {"partitions": []})
    found = await services.instances.use(_instance_of(services, call), lambda consumer: consumer.committed(partitions))
    shown = [
        {"topic": topic, "partition": partition, "offset": offset, "metadata": metadata}
        for topic, partition, offset, metadata in found
        if offset >= 0
    ]
    return answer({"offsets": shown})


def _partitions(body: Any) -> list[tuple[str, int]]:
    return [(each["topic"], each["partition"]) for each in body["partitions"]]
