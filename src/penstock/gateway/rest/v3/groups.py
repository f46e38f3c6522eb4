"""REST Proxy v3: consumer groups, their members and their lag."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.kafka.admin import REQUEST_TIMEOUT_S, Admin, ask, result_of
from penstock.gateway.kafka.errors import KafkaProblem, checked_call, problem_of
from penstock.gateway.kafka.groups import CommittedOffset, Groups
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: groups"


def v3_group_operations(admin: Admin, groups: Groups, v3: V3) -> list[Operation]:
    """Operations on consumer groups."""
    routes = v3.routes(TAG, "/consumer-groups")

    async def describe(call: Call) -> Any:
        name = call["consumer_group_id"]
        group = await ask(admin.client.describe_consumer_groups, [name])
        if group.state.name in ("DEAD", "UNKNOWN") and not group.members and not await groups.committed(name):
            raise Problem(40405, f"no consumer group {name[:100]!r}", "list the groups to see their names")
        return group

    def show(call: Call, group: Any) -> dict[str, Any]:
        words = ("consumer-groups", group.group_id)
        coordinator = group.coordinator.id if group.coordinator is not None else None
        return v3.resource(
            call,
            "KafkaConsumerGroup",
            words,
            consumer_group_id=group.group_id,
            is_simple=bool(group.is_simple_consumer_group),
            partition_assignor=group.partition_assignor or "",
            state=group.state.name,
            type=getattr(getattr(group, "type", None), "name", "UNKNOWN"),
            coordinator=v3.related(call, "brokers", coordinator) if coordinator is not None else None,
            consumers=v3.related(call, *words, "consumers"),
            lag_summary=v3.related(call, *words, "lag-summary"),
        )

    @routes.on("GET", "List the groups.", answers={200: LIST_SHAPE})
    async def listing(call: Call) -> Response:
        found = await ask(admin.client.list_consumer_groups)
        if found.errors:
            # A response of this kind cannot be marked as incomplete.
            raise problem_of(found.errors[0], "the groups of some brokers cannot be listed: ")
        names = sorted(each.group_id for each in found.valid)
        futures = {}
        if names:
            futures = checked_call(admin.client.describe_consumer_groups, names, request_timeout=REQUEST_TIMEOUT_S)
        data = []
        for future in futures.values():
            try:
                data.append(show(call, await result_of(future)))
            except KafkaProblem as problem:
                # One that was deleted meanwhile is not listed.
                if problem.kafka_error != "GROUP_ID_NOT_FOUND":
                    raise
        return v3.listed(call, "KafkaConsumerGroupList", ("consumer-groups",), data)

    @routes.on("GET /{consumer_group_id}", "Show a group.")
    async def one(call: Call) -> Response:
        return json_response(show(call, await describe(call)))

    def show_member(call: Call, member: Any) -> dict[str, Any]:
        group = call["consumer_group_id"]
        words = ("consumer-groups", group, "consumers", member.member_id)
        return v3.resource(
            call,
            "KafkaConsumer",
            words,
            consumer_group_id=group,
            consumer_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            assignments=v3.related(call, *words, "assignments"),
        )

    @routes.on("GET /{consumer_group_id}/consumers", "List members.", answers={200: LIST_SHAPE})
    async def members(call: Call) -> Response:
        group = await describe(call)
        data = [show_member(call, member) for member in group.members]
        return v3.listed(call, "KafkaConsumerList", ("consumer-groups", group.group_id, "consumers"), data)

    async def find_member(call: Call) -> Any:
        for member in (await describe(call)).members:
            if member.member_id == call["consumer_id"]:
                return member
        raise Problem(40406, f"the group has no member {call['consumer_id'][:100]!r}", "list its members first")

    @routes.on("GET /{consumer_group_id}/consumers/{consumer_id}", "Show a member.")
    async def member(call: Call) -> Response:
        return json_response(show_member(call, await find_member(call)))

    @routes.on(
        "GET /{consumer_group_id}/consumers/{consumer_id}/assignments", "List the partitions assigned to a member."
    )
    async def assignments(call: Call) -> Response:
        found = await find_member(call)
        group, consumer = call["consumer_group_id"], found.member_id
        base = ("consumer-groups", group, "consumers", consumer, "assignments")
        partitions = [(each.topic, each.partition) for each in found.assignment.topic_partitions]
        data = [
            v3.resource(
                call,
                "KafkaConsumerAssignment",
                (*base, topic, "partitions", partition),
                consumer_group_id=group,
                consumer_id=consumer,
                topic_name=topic,
                partition_id=partition,
                partition=v3.related(call, "topics", topic, "partitions", partition),
                lag=v3.related(call, "consumer-groups", group, "lags", topic, "partitions", partition),
            )
            for topic, partition in sorted(partitions)
        ]
        return v3.listed(call, "KafkaConsumerAssignmentList", base, data)

    return [*routes, *_lag_operations(groups, v3, describe)]


def _lag_operations(groups: Groups, v3: V3, describe: Any) -> list[Operation]:
    """Operations on a group's lag."""
    routes = v3.routes(TAG, "/consumer-groups/{consumer_group_id}")

    async def owners(call: Call) -> dict[tuple[str, int], Any]:
        return {
            (each.topic, each.partition): member
            for member in (await describe(call)).members
            for each in member.assignment.topic_partitions
        }

    def show(call: Call, lag: CommittedOffset, member: Any) -> dict[str, Any]:
        group = call["consumer_group_id"]
        return v3.resource(
            call,
            "KafkaConsumerLag",
            ("consumer-groups", group, "lags", lag.topic, "partitions", lag.partition),
            consumer_group_id=group,
            topic_name=lag.topic,
            partition_id=lag.partition,
            consumer_id=member.member_id if member is not None else "",
            instance_id=member.group_instance_id if member is not None else None,
            client_id=member.client_id if member is not None else "",
            current_offset=lag.offset,
            log_end_offset=lag.end,
            lag=lag.lag,
        )

    @routes.on("GET /lags", "List lags by partition.", answers={200: LIST_SHAPE})
    async def lags(call: Call) -> Response:
        owner = await owners(call)
        group = call["consumer_group_id"]
        found = await groups.lags(group)
        data = [show(call, each, owner.get((each.topic, each.partition))) for each in found]
        return v3.listed(call, "KafkaConsumerLagList", ("consumer-groups", group, "lags"), data)

    @routes.on("GET /lags/{topic_name}/partitions/{partition_id}", "Show the lag in a partition.")
    async def lag(call: Call) -> Response:
        owner = await owners(call)
        wanted = (call["topic_name"], call["partition_id"])
        for each in await groups.lags(call["consumer_group_id"]):
            if (each.topic, each.partition) == wanted:
                return json_response(show(call, each, owner.get(wanted)))
        raise Problem(40402, "the group has no committed offset there", "list its lags to see its partitions")

    @routes.on("GET /lag-summary", "Show a summary of a group's lag.")
    async def summary(call: Call) -> Response:
        owner = await owners(call)
        group = call["consumer_group_id"]
        found = await groups.lags(group)
        if not found:
            raise Problem(40402, f"group {group} has no committed offsets", "it must read and commit first")
        worst = max(found, key=lambda each: each.lag)
        member = owner.get((worst.topic, worst.partition))
        words = ("consumer-groups", group, "lag-summary")
        return json_response(
            v3.resource(
                call,
                "KafkaConsumerGroupLagSummary",
                words,
                f"consumer-groups={group}/lag-summary",
                consumer_group_id=group,
                max_lag_consumer_id=member.member_id if member is not None else "",
                max_lag_instance_id=member.group_instance_id if member is not None else None,
                max_lag_client_id=member.client_id if member is not None else "",
                max_lag_topic_name=worst.topic,
                max_lag_partition_id=worst.partition,
                max_lag=worst.lag,
                total_lag=sum(each.lag for each in found),
                max_lag_partition=v3.related(call, "topics", worst.topic, "partitions", worst.partition),
            )
        )

    return routes
