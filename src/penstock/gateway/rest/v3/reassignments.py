"""REST Proxy v3: partition reassignments, and tasks of brokers."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.kafka.broker_requests import check
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, v3_routes
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

TAG = "REST Proxy v3: cluster"
TAIL = "reassignment"


routes: Routes[RestServices] = v3_routes(TAG)


async def _reassignments(
    services: RestServices, call: Call, topics: list[ListPartitionReassignmentsTopics] | None
) -> list[dict[str, object]]:
    request = ListPartitionReassignmentsRequest(topics=topics)
    response = await services.wire.ask(request)
    check(response.error_code, response.error_message, "cannot list the reassignments")
    return [
        services.v3.resource(
            call,
            "KafkaReassignment",
            ("topics", topic.name, "partitions", each.partition_index, TAIL),
            topic_name=topic.name,
            partition_id=each.partition_index,
            adding_replicas=list(each.adding_replicas),
            removing_replicas=list(each.removing_replicas),
            replicas=services.v3.related(call, "topics", topic.name, "partitions", each.partition_index, "replicas"),
        )
        for topic in response.topics
        for each in topic.partitions
    ]


@routes.on("GET /topics/-/partitions/-/reassignment", "List ongoing reassignments.", answers={200: LIST_SHAPE})
async def everywhere(services: RestServices, call: Call) -> Response:
    words = ("topics", "-", "partitions", "-", TAIL)
    return services.v3.listed(call, "KafkaReassignmentList", words, await _reassignments(services, call, None))


@routes.on(
    "GET /topics/{topic_name}/partitions/-/reassignment",
    "List a topic's ongoing reassignments.",
    answers={200: LIST_SHAPE},
)
async def of_topic(services: RestServices, call: Call) -> Response:
    name = call["topic_name"]
    numbers = list(range(await services.admin.partition_count(name)))
    moving = await _reassignments(services, call, [ListPartitionReassignmentsTopics(name, numbers)])
    return services.v3.listed(call, "KafkaReassignmentList", ("topics", name, "partitions", "-", TAIL), moving)


@routes.on(
    "GET /topics/{topic_name}/partitions/{partition_id}/reassignment", "Show a partition's ongoing reassignment."
)
async def of_partition(services: RestServices, call: Call) -> Response:
    name, number = call["topic_name"], call["partition_id"]
    await services.admin.check_partition(name, number)
    moving = await _reassignments(services, call, [ListPartitionReassignmentsTopics(name, [number])])
    if not moving:
        raise Problem(40404, f"partition {number} of {name} is not being reassigned", "no action is needed")
    return json_response(moving[0])


@routes.on("GET /brokers/{broker_id}/tasks", "List a broker's tasks.", answers={200: LIST_SHAPE})
@routes.on("GET /brokers/-/tasks", "List tasks.", answers={200: LIST_SHAPE})
async def tasks(services: RestServices, call: Call) -> Response:
    words = ("brokers", call.parameters.get("broker_id", "-"), "tasks")
    # Brokers are removed and balanced by `penstock cluster`, which stores no tasks in the brokers.
    return services.v3.listed(call, "KafkaBrokerTaskList", words, [])
