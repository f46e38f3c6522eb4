"""`/api/v1/dead-letters`: dead-letter topics, and replaying their records."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.kafka.dead_letter_headers import TOPIC_NAMES, VALUE_BYTES_MAX, is_cut, origin_of, without_reasons
from penstock.gateway.kafka.publisher import OutgoingRecord
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.console.topics import counts, show
from penstock.gateway.rest.native.tail import chosen_partitions
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import OFFSET_SHAPE, PARTITION_SHAPE, TOPIC, TOPIC_SHAPE, left_out
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, json_object
from penstock.gateway.web.problem import Problem

TAG = "Dead letters (v1)"
PREFIX = "dlq."
RECORDS_MAX = 1000
SHOWN_MAX = 200
REPLAY_BODY = json_object(
    ["partition", "offset"],
    partition=PARTITION_SHAPE,
    offset=OFFSET_SHAPE,
    count={"type": "integer", "minimum": 1, "maximum": RECORDS_MAX},
    to=TOPIC_SHAPE,
)


routes: Routes[RestServices] = Routes(TAG, "/api/v1/dead-letters", (TOPIC,))


@routes.on(
    "GET",
    "List dead-letter topics, recognized by name: dlq.orders, orders.dlq, orders-dlt and the like.",
    answers={200: json_object(["topics"])},
)
async def listing(services: RestServices, _: Call) -> Response:
    snapshot = await services.snapshots.latest()
    names = [name for name in snapshot.topics if TOPIC_NAMES.search(name)][:SHOWN_MAX]
    counted = await counts(services.groups, snapshot, names)
    rows = [{**show(name, snapshot.topics[name]), **counted.get(name, {}), "origin": topic_of(name)} for name in names]
    return json_response({"topics": rows})


@routes.on(
    "POST /{topic}/replay",
    "Replay records to their original topics, without their dead-letter headers.",
    body=Body(REPLAY_BODY, example={"partition": 0, "offset": 17, "to": "orders"}),
    answers={200: json_object(["replayed"])},
)
async def replay(services: RestServices, call: Call) -> Response:
    topic, body = call["topic"], call.body
    if not TOPIC_NAMES.search(topic):
        raise Problem(
            40003,
            f"{topic} is not a dead-letter topic",
            "dead-letter topics are known by their names: dlq.orders, orders-dlt",
        )
    await chosen_partitions(services.admin, topic, body["partition"])
    records = await services.readers.read(topic, body["partition"], body["offset"], body.get("count", 1))
    if not records:
        raise Problem(40402, f"no record at offset {body['offset']}", "list the topic's messages first")
    by_target: dict[str, list[ReadRecord]] = {}
    for record in records:
        if left_out(record):
            # Without its headers it would be a different record.
            why = left_out(record)["unreadable"]
            raise Problem(42206, f"offset {record.offset} cannot be replayed: {why}", "use a Kafka client")
        by_target.setdefault(_target(record, body.get("to"), topic), []).append(await whole(services, record))
    outcomes: list[dict[str, object]] = []
    for target, group in by_target.items():
        delivered = await services.publisher.publish_all(target, [_again(record) for record in group])
        for record, outcome in zip(group, delivered, strict=True):
            row: dict[str, object] = {"offset": record.offset, "topic": target}
            if isinstance(outcome, Problem):
                row["error"] = outcome.message
            else:
                row |= {"partition": outcome.partition, "new_offset": outcome.offset}
            outcomes.append(row)
    return json_response({"replayed": outcomes})


async def whole(services: RestServices, letter: ReadRecord) -> ReadRecord:
    """A letter with its record's contents, which share groups omit by default, and others if too large."""
    if is_cut(letter.value, letter.headers):
        raise Problem(
            42206,
            f"the letter at offset {letter.offset} has only the first {VALUE_BYTES_MAX} bytes of its record's value",
            "raise max.message.bytes of the record's topic, and run the pipeline that wrote the letter again",
        )
    origin = origin_of(letter.headers)
    if letter.key is not None or letter.value is not None or origin is None or origin.group is None:
        return letter
    found: list[ReadRecord] = []
    if origin.topic is not None and origin.partition is not None and origin.offset is not None:
        await chosen_partitions(services.admin, origin.topic, origin.partition)
        found = await services.readers.read(origin.topic, origin.partition, origin.offset, 1)
    if not found or found[0].offset != origin.offset or left_out(found[0]):
        raise Problem(
            40402,
            f"the letter at offset {letter.offset} has no copy of its record, which is no longer in its topic",
            "set errors.deadletterqueue.copy.record.enable=true for the group, so that letters have copies",
        )
    return letter._replace(key=found[0].key, value=found[0].value, headers=found[0].headers)


def topic_of(name: str) -> str:
    """The topic that a dead-letter topic belongs to, derived from its name; empty if that is not possible."""
    if name.startswith(PREFIX):
        return name[len(PREFIX) :]
    stripped = TOPIC_NAMES.sub(".", name).strip("._-")
    return stripped if stripped != name else ""


def _target(record: ReadRecord, wanted: str | None, topic: str) -> str:
    if wanted:
        return wanted
    origin = origin_of(record.headers)
    target = origin.topic if origin is not None and origin.topic else topic_of(topic)
    if not target:
        raise Problem(40003, f"offset {record.offset} does not name its original topic", "give the topic as `to`")
    return target


def _again(record: ReadRecord) -> OutgoingRecord:
    return OutgoingRecord(record.key, record.value, without_reasons(record.headers))
