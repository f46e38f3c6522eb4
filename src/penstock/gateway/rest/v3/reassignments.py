"""REST Proxy v3: partition reassignments, and tasks of brokers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.broker_requests import BrokerWire, check
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

TAG = "REST Proxy v3: cluster"
TAIL = "reassignment"


def v3_reassignment_operations(admin: Admin, wire: BrokerWire, v3: V3) -> list[Operation]:
    """Operations that list reassignments: of the cluster, a topic or a partition."""
    routes = v3.routes(TAG)

    async def found(call: Call, topics: list[ListPartitionReassignmentsTopics] | None) -> list[dict[str, Any]]:
        request = ListPartitionReassignmentsRequest(topics=topics)
        response: ListPartitionReassignmentsResponse = await wire.ask(request)
        check(response.error_code, response.error_message, "cannot list the reassignments")
        return [
            v3.resource(
                call,
                "KafkaReassignment",
                ("topics", topic.name, "partitions", each.partition_index, TAIL),
                topic_name=topic.name,
                partition_id=each.partition_index,
                adding_replicas=list(each.adding_replicas),
                removing_replicas=list(each.removing_replicas),
                replicas=v3.related(call, "topics", topic.name, "partitions", each.partition_index, "replicas"),
            )
            for topic in response.topics
            for each in topic.partitions
        ]

    @routes.on("GET /topics/-/partitions/-/reassignment", "List ongoing reassignments.", answers={200: LIST_SHAPE})
    async def everywhere(call: Call) -> Response:
        words = ("topics", "-", "partitions", "-", TAIL)
        return v3.listed(call, "KafkaReassignmentList", words, await found(call, None))

    @routes.on(
        "GET /topics/{topic_name}/partitions/-/reassignment",
        "List a topic's ongoing reassignments.",
        answers={200: LIST_SHAPE},
    )
    async def of_topic(call: Call) -> Response:
        name = call["topic_name"]
        numbers = list(range(await admin.partition_count(name)))
        moving = await found(call, [ListPartitionReassignmentsTopics(name, numbers)])
        return v3.listed(call, "KafkaReassignmentList", ("topics", name, "partitions", "-", TAIL), moving)

    @routes.on(
        "GET /topics/{topic_name}/partitions/{partition_id}/reassignment", "Show a partition's ongoing reassignment."
    )
    async def of_partition(call: Call) -> Response:
        name, number = call["topic_name"], call["partition_id"]
        await admin.check_partition(name, number)
        moving = await found(call, [ListPartitionReassignmentsTopics(name, [number])])
        if not moving:
            raise Problem(40404, f"partition {number} of {name} is not being reassigned", "no action is needed")
        return json_response(moving[0])

    @routes.on("GET /brokers/{broker_id}/tasks", "List a broker's tasks.", answers={200: LIST_SHAPE})
    @routes.on("GET /brokers/-/tasks", "List tasks.", answers={200: LIST_SHAPE})
    async def tasks(call: Call) -> Response:
        words = ("brokers", call.parameters.get("broker_id", "-"), "tasks")
        # Brokers are removed and balanced by `penstock cluster`, which stores no tasks in the brokers.
        return v3.listed(call, "KafkaBrokerTaskList", words, [])

    return routes
