"""REST Proxy v3: topics and their partitions."""

from __future__ import annotations

from starlette.responses import Response

from penstock.client.operations.topics import Partition, Topic, add_partitions
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import REPLICATION_FACTOR_MAX
from penstock.gateway.rest.v3.clusters import show_replica
from penstock.gateway.rest.v3.shapes import (
    ANY_OBJECT,
    LIST_SHAPE,
    PAGE,
    page_of,
    v3_routes,
)
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Routes, json_object
from penstock.gateway.web.parameters import flag
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: topics"
PARTITIONS_MAX = 10_000
CREATE_BODY = json_object(
    ["topic_name"],
    topic_name={"type": "string", "pattern": r"^[a-zA-Z0-9._-]{1,249}$"},
    partitions_count={"type": ["integer", "null"], "minimum": 1, "maximum": PARTITIONS_MAX},
    replication_factor={"type": ["integer", "null"], "minimum": 1, "maximum": REPLICATION_FACTOR_MAX},
    configs={
        "type": "array",
        "items": json_object(["name"], name={"type": "string"}, value={"type": ["string", "null"]}),
    },
    validate_only={"type": "boolean"},
)
PATCH_BODY = json_object(
    ["partitions_count"], partitions_count={"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX}
)
CREATE_EXAMPLE = {
    "topic_name": "orders",
    "partitions_count": 3,
    "configs": [{"name": "retention.ms", "value": "3600000"}],
}
# Confluent's proxy uses the first name for one topic and the second for all topics.
OPERATIONS = tuple(
    flag(name, "Include the operations that the gateway's user is authorized for.")
    for name in ("include_authorized_operations", "includeAuthorizedOperations")
)


routes: Routes[RestServices] = v3_routes(TAG, "/topics")


def show(services: RestServices, call: Call, topic: Topic | None, name: str) -> dict[str, object]:
    return services.v3.resource(
        call,
        "KafkaTopic",
        ("topics", name),
        topic_name=name,
        is_internal=topic is not None and topic.internal,
        replication_factor=topic.replication_factor if topic is not None else 0,
        partitions_count=len(topic.partitions) if topic is not None else 0,
        partitions=services.v3.related(call, "topics", name, "partitions"),
        configs=services.v3.related(call, "topics", name, "configs"),
        partition_reassignments=services.v3.related(call, "topics", name, "partitions", "-", "reassignment"),
        authorized_operations=sorted(each.name for each in (topic.operations if topic is not None else None) or ()),
    )


def with_operations(call: Call) -> bool:
    return any(call.parameters.get(parameter.name) for parameter in OPERATIONS)


@routes.on("GET", "List the topics.", *PAGE, *OPERATIONS, answers={200: LIST_SHAPE})
async def listing(services: RestServices, call: Call) -> Response:
    names, token = page_of(call, await services.admin.names())
    described = await services.admin.describe_all(names, with_operations=with_operations(call)) if names else {}
    return services.v3.listed(
        call, "KafkaTopicList", ("topics",), [show(services, call, described[name], name) for name in names], token
    )


@routes.on("GET /{topic_name}", "Show a topic.", *OPERATIONS, answers={200: ANY_OBJECT})
async def one(services: RestServices, call: Call) -> Response:
    name = call["topic_name"]
    described = await services.admin.describe_all([name], with_operations=with_operations(call))
    return json_response(show(services, call, described[name], name))


@routes.on(
    "POST",
    "Create a topic.",
    body=Body(CREATE_BODY, example=CREATE_EXAMPLE),
    answers={200: ANY_OBJECT, 201: ANY_OBJECT},
)
async def create(services: RestServices, call: Call) -> Response:
    body = call.body
    name, validate = body["topic_name"], body.get("validate_only", False)
    configs = {each["name"]: each["value"] for each in body.get("configs", ()) if each.get("value") is not None}
    topic = await services.admin.create(
        name,
        body.get("partitions_count") or -1,
        body.get("replication_factor") or -1,
        configs,
        validate=validate,
    )
    return json_response(show(services, call, topic, name), 200 if validate else 201)


@routes.on("PATCH /{topic_name}", "Add partitions to a topic.", body=Body(PATCH_BODY))
async def grow(services: RestServices, call: Call) -> Response:
    name, count = call["topic_name"], call.body["partitions_count"]
    present = await services.admin.partition_count(name)
    if count < present:
        raise Problem(40002, f"topic {name} already has {present} partitions", "partitions cannot be removed")
    if count > present:
        await services.admin.brokers.run(add_partitions, name, count)
        services.admin.forget(name)
        await services.admin.shown(name, lambda topic: topic is not None and len(topic.partitions) >= count)
    return json_response(show(services, call, await services.admin.describe(name), name))


@routes.on("DELETE /{topic_name}", "Delete a topic.", answers=NO_CONTENT)
async def delete(services: RestServices, call: Call) -> Response:
    await services.admin.delete(call["topic_name"])
    return Response(status_code=204)


partition_routes: Routes[RestServices] = v3_routes(TAG, "/topics/{topic_name}/partitions")


def show_partition(services: RestServices, call: Call, name: str, partition: Partition) -> dict[str, object]:
    words = ("topics", name, "partitions", partition.partition)
    return services.v3.resource(
        call,
        "KafkaPartition",
        words,
        topic_name=name,
        partition_id=partition.partition,
        leader=services.v3.related(call, *words, "replicas", partition.leader) if partition.leader >= 0 else None,
        replicas=services.v3.related(call, *words, "replicas"),
        reassignment=services.v3.related(call, *words, "reassignment"),
    )


async def _find(services: RestServices, call: Call) -> Partition:
    return await services.admin.partition(call["topic_name"], call["partition_id"])


@partition_routes.on("GET", "List partitions.", answers={200: LIST_SHAPE})
async def partitions(services: RestServices, call: Call) -> Response:
    name = call["topic_name"]
    data = [show_partition(services, call, name, each) for each in (await services.admin.describe(name)).partitions]
    return services.v3.listed(call, "KafkaPartitionList", ("topics", name, "partitions"), data)


@partition_routes.on("GET /{partition_id}", "Show a partition.")
async def partition(services: RestServices, call: Call) -> Response:
    return json_response(show_partition(services, call, call["topic_name"], await _find(services, call)))


@partition_routes.on("GET /{partition_id}/offset", "Show a partition's offsets.")
async def offset(services: RestServices, call: Call) -> Response:
    await _find(services, call)
    name, number = call["topic_name"], call["partition_id"]
    marks = await services.readers.watermarks(name, number)
    words = ("topics", name, "partitions", number, "offset")
    return json_response(
        services.v3.resource(
            call,
            "KafkaPartitionOffset",
            words,
            f"topic={name}/partition={number}",
            topic_name=name,
            partition_id=number,
            earliest_offset=marks.beginning,
            latest_offset=marks.end,
        )
    )


@partition_routes.on("GET /{partition_id}/replicas", "List replicas.")
async def replicas(services: RestServices, call: Call) -> Response:
    found = await _find(services, call)
    name = call["topic_name"]
    words = ("topics", name, "partitions", found.partition, "replicas")
    data = [show_replica(services.v3, call, name, found, broker) for broker in found.replicas]
    return services.v3.listed(call, "KafkaReplicaList", words, data)


@partition_routes.on("GET /{partition_id}/replicas/{broker_id}", "Show a replica.")
async def replica(services: RestServices, call: Call) -> Response:
    found = await _find(services, call)
    broker = call["broker_id"]
    if broker not in found.replicas:
        raise Problem(40404, f"broker {broker} has no replica of it", "list the replicas to see which brokers have one")
    return json_response(show_replica(services.v3, call, call["topic_name"], found, broker))
