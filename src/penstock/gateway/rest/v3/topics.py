"""REST Proxy v3: topics and their partitions."""

from __future__ import annotations

from typing import Any

from confluent_kafka.cimpl import NewPartitions
from starlette.responses import Response

from penstock.gateway.kafka.admin import REQUEST_TIMEOUT_S, Admin, result_of
from penstock.gateway.kafka.errors import checked_call
from penstock.gateway.kafka.reader import Readers
from penstock.gateway.rest.shapes import REPLICATION_FACTOR_MAX
from penstock.gateway.rest.v3.clusters import show_replica
from penstock.gateway.rest.v3.shapes import (
    ANY_OBJECT,
    BROKER_ID,
    CLUSTER,
    LIST_SHAPE,
    PAGE,
    PARTITION_ID,
    TOPIC_NAME,
    V3,
    page_of,
)
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Operation
from penstock.gateway.web.parameters import flag
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: topics"
PARTITIONS_MAX = 10_000
CREATE_BODY = {
    "type": "object",
    "required": ["topic_name"],
    "properties": {
        "topic_name": {"type": "string", "pattern": r"^[a-zA-Z0-9._-]{1,249}$"},
        "partitions_count": {"type": ["integer", "null"], "minimum": 1, "maximum": PARTITIONS_MAX},
        "replication_factor": {"type": ["integer", "null"], "minimum": 1, "maximum": REPLICATION_FACTOR_MAX},
        "configs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "value": {"type": ["string", "null"]}},
            },
        },
        "validate_only": {"type": "boolean"},
    },
}
PATCH_BODY = {
    "type": "object",
    "required": ["partitions_count"],
    "properties": {"partitions_count": {"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX}},
}
BASE = "/v3/clusters/{cluster_id}/topics"
# Confluent's proxy uses the first name for one topic and the second for all topics.
OPERATIONS = tuple(
    flag(name, "Include the operations that the gateway's user is authorized for.")
    for name in ("include_authorized_operations", "includeAuthorizedOperations")
)


def v3_topic_operations(admin: Admin, v3: V3) -> list[Operation]:
    """Topics."""

    def show(call: Call, topic: Any, name: str) -> dict[str, Any]:
        return v3.resource(
            call,
            "KafkaTopic",
            ("topics", name),
            f"topic={name}",
            topic_name=name,
            is_internal=bool(topic.is_internal) if topic is not None else False,
            replication_factor=len(topic.partitions[0].replicas) if topic is not None and topic.partitions else 0,
            partitions_count=len(topic.partitions) if topic is not None else 0,
            partitions=v3.related(call, "topics", name, "partitions"),
            configs=v3.related(call, "topics", name, "configs"),
            partition_reassignments=v3.related(call, "topics", name, "partitions", "-", "reassignment"),
            authorized_operations=sorted(each.name for each in getattr(topic, "authorized_operations", None) or ()),
        )

    def with_operations(call: Call) -> bool:
        return any(call.parameters.get(parameter.name) for parameter in OPERATIONS)

    async def listing(call: Call) -> Response:
        v3.check(call)
        names, token = page_of(call, await admin.names())
        described = await admin.describe_all(names, operations=with_operations(call)) if names else {}
        return v3.listed(
            call, "KafkaTopicList", ("topics",), [show(call, described[name], name) for name in names], token
        )

    async def one(call: Call) -> Response:
        v3.check(call)
        name = call["topic_name"]
        described = await admin.describe_all([name], operations=with_operations(call))
        return json_response(show(call, described[name], name))

    async def create(call: Call) -> Response:
        v3.check(call)
        body = call.body
        name, validate = body["topic_name"], body.get("validate_only", False)
        configs = {each["name"]: each["value"] for each in body.get("configs", ()) if each.get("value") is not None}
        topic = await admin.create(
            name,
            body.get("partitions_count") or -1,
            body.get("replication_factor") or -1,
            configs,
            validate=validate,
        )
        return json_response(show(call, topic, name), 200 if validate else 201)

    async def grow(call: Call) -> Response:
        v3.check(call)
        name, count = call["topic_name"], call.body["partitions_count"]
        present = await admin.partition_count(name)
        if count < present:
            raise Problem(400, 40002, f"topic {name} already has {present} partitions", "partitions cannot be removed")
        if count > present:
            futures = checked_call(
                admin.client.create_partitions,
                [checked_call(NewPartitions, name, count)],
                request_timeout=REQUEST_TIMEOUT_S,
            )
            await result_of(futures[name])
            admin.forget(name)
            await admin.shown(name, lambda topic: topic is not None and len(topic.partitions) >= count)
        return json_response(show(call, await admin.describe(name), name))

    async def delete(call: Call) -> Response:
        v3.check(call)
        await admin.delete([call["topic_name"]])
        return Response(status_code=204)

    place = (CLUSTER, TOPIC_NAME)
    example = {"topic_name": "orders", "partitions_count": 3, "configs": [{"name": "retention.ms", "value": "3600000"}]}
    return [
        Operation(
            "GET", BASE, listing, "List the topics.", TAG, (CLUSTER, *PAGE, *OPERATIONS), answers={200: LIST_SHAPE}
        ),
        Operation(
            "POST",
            BASE,
            create,
            "Create a topic.",
            TAG,
            (CLUSTER,),
            Body(CREATE_BODY, example=example),
            {200: ANY_OBJECT, 201: ANY_OBJECT},
        ),
        Operation(
            "GET", f"{BASE}/{{topic_name}}", one, "Show a topic.", TAG, (*place, *OPERATIONS), answers={200: ANY_OBJECT}
        ),
        Operation("PATCH", f"{BASE}/{{topic_name}}", grow, "Add partitions to a topic.", TAG, place, Body(PATCH_BODY)),
        Operation("DELETE", f"{BASE}/{{topic_name}}", delete, "Delete a topic.", TAG, place, answers={204: None}),
    ]


def v3_partition_operations(admin: Admin, readers: Readers, v3: V3) -> list[Operation]:
    """Partitions and replicas of a topic."""

    def show(call: Call, name: str, partition: Any) -> dict[str, Any]:
        words = ("topics", name, "partitions", partition.id)
        leader = partition.leader.id if partition.leader is not None else None
        return v3.resource(
            call,
            "KafkaPartition",
            words,
            f"topic={name}/partition={partition.id}",
            topic_name=name,
            partition_id=partition.id,
            leader=v3.related(call, *words, "replicas", leader) if leader is not None else None,
            replicas=v3.related(call, *words, "replicas"),
            reassignment=v3.related(call, *words, "reassignment"),
        )

    async def find(call: Call) -> Any:
        v3.check(call)
        for partition in (await admin.describe(call["topic_name"])).partitions:
            if partition.id == call["partition_id"]:
                return partition
        raise Problem(
            404,
            40402,
            f"topic {call['topic_name']} has no partition {call['partition_id']}",
            "partitions count from 0",
        )

    async def partitions(call: Call) -> Response:
        v3.check(call)
        name = call["topic_name"]
        data = [show(call, name, each) for each in (await admin.describe(name)).partitions]
        return v3.listed(call, "KafkaPartitionList", ("topics", name, "partitions"), data)

    async def partition(call: Call) -> Response:
        return json_response(show(call, call["topic_name"], await find(call)))

    async def offset(call: Call) -> Response:
        await find(call)
        name, number = call["topic_name"], call["partition_id"]
        marks = await readers.watermarks(name, number)
        words = ("topics", name, "partitions", number, "offset")
        return json_response(
            v3.resource(
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

    async def replicas(call: Call) -> Response:
        found = await find(call)
        name = call["topic_name"]
        words = ("topics", name, "partitions", found.id, "replicas")
        return v3.listed(
            call, "KafkaReplicaList", words, [show_replica(v3, call, name, found, node) for node in found.replicas]
        )

    async def replica(call: Call) -> Response:
        found = await find(call)
        for node in found.replicas:
            if node.id == call["broker_id"]:
                return json_response(show_replica(v3, call, call["topic_name"], found, node))
        raise Problem(
            404,
            40404,
            f"broker {call['broker_id']} has no replica of it",
            "list the replicas to see which brokers have one",
        )

    base = f"{BASE}/{{topic_name}}/partitions"
    place = (CLUSTER, TOPIC_NAME, PARTITION_ID)
    return [
        Operation("GET", base, partitions, "List partitions.", TAG, (CLUSTER, TOPIC_NAME), answers={200: LIST_SHAPE}),
        Operation("GET", f"{base}/{{partition_id}}", partition, "Show a partition.", TAG, place),
        Operation("GET", f"{base}/{{partition_id}}/offset", offset, "Show a partition's offsets.", TAG, place),
        Operation("GET", f"{base}/{{partition_id}}/replicas", replicas, "List replicas.", TAG, place),
        Operation(
            "GET",
            f"{base}/{{partition_id}}/replicas/{{broker_id}}",
            replica,
            "Show a replica.",
            TAG,
            (*place, BROKER_ID),
        ),
    ]
