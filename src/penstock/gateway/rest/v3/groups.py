"""REST Proxy v3: consumer groups, their members and their lag."""

from __future__ import annotations

from starlette.responses import Response

from penstock.client.operations.groups import Group, Member
from penstock.gateway.kafka.groups import CommittedOffset, is_consumer_group, owners_of, state_name
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, v3_routes
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.problem import Problem
from penstock.model.ids import TopicPartition

TAG = "REST Proxy v3: groups"


routes: Routes[RestServices] = v3_routes(TAG, "/consumer-groups")


async def _describe(services: RestServices, call: Call) -> Group:
    name = call["consumer_group_id"]
    group = (await services.groups.describe([name])).get(name)
    if group is None or not is_consumer_group(group):
        raise Problem(40405, f"no consumer group {name[:100]!r}", "list the groups to see their names")
    return group


def show(services: RestServices, call: Call, group: Group) -> dict[str, object]:
    words = ("consumer-groups", group.group_id)
    coordinator = group.coordinator.node_id if group.coordinator is not None else None
    return services.v3.resource(
        call,
        "KafkaConsumerGroup",
        words,
        consumer_group_id=group.group_id,
        is_simple=group.is_simple,
        partition_assignor=group.assignor,
        state=state_name(group),
        type=(group.type or "unknown").upper(),
        coordinator=services.v3.related(call, "brokers", coordinator) if coordinator is not None else None,
        consumers=services.v3.related(call, *words, "consumers"),
        lag_summary=services.v3.related(call, *words, "lag-summary"),
    )


@routes.on("GET", "List the groups.", answers={200: LIST_SHAPE})
async def listing(services: RestServices, call: Call) -> Response:
    found, problems = await services.groups.listed()
    for problem in problems:
        # A response of this kind cannot be marked as incomplete.
        why = f"the groups of some brokers cannot be listed: {problem.message}"
        raise Problem(problem.code, why, problem.fix, headers=problem.headers)
    described = await services.groups.describe([group.group_id for group in found if is_consumer_group(group)])
    data = [show(services, call, described[name]) for name in sorted(described)]
    return services.v3.listed(call, "KafkaConsumerGroupList", ("consumer-groups",), data)


@routes.on("GET /{consumer_group_id}", "Show a group.")
async def one(services: RestServices, call: Call) -> Response:
    return json_response(show(services, call, await _describe(services, call)))


def show_member(services: RestServices, call: Call, member: Member) -> dict[str, object]:
    group = call["consumer_group_id"]
    words = ("consumer-groups", group, "consumers", member.member_id)
    return services.v3.resource(
        call,
        "KafkaConsumer",
        words,
        consumer_group_id=group,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=services.v3.related(call, *words, "assignments"),
    )


@routes.on("GET /{consumer_group_id}/consumers", "List members.", answers={200: LIST_SHAPE})
async def members(services: RestServices, call: Call) -> Response:
    group = await _describe(services, call)
    data = [show_member(services, call, member) for member in group.members]
    return services.v3.listed(call, "KafkaConsumerList", ("consumer-groups", group.group_id, "consumers"), data)


async def find_member(services: RestServices, call: Call) -> Member:
    for member in (await _describe(services, call)).members:
        if member.member_id == call["consumer_id"]:
            return member
    raise Problem(40406, f"the group has no member {call['consumer_id'][:100]!r}", "list its members first")


@routes.on("GET /{consumer_group_id}/consumers/{consumer_id}", "Show a member.")
async def member(services: RestServices, call: Call) -> Response:
    return json_response(show_member(services, call, await find_member(services, call)))


@routes.on("GET /{consumer_group_id}/consumers/{consumer_id}/assignments", "List the partitions assigned to a member.")
async def assignments(services: RestServices, call: Call) -> Response:
    found = await find_member(services, call)
    group, consumer = call["consumer_group_id"], found.member_id
    base = ("consumer-groups", group, "consumers", consumer, "assignments")
    data = [
        services.v3.resource(
            call,
            "KafkaConsumerAssignment",
            (*base, topic, "partitions", partition),
            consumer_group_id=group,
            consumer_id=consumer,
            topic_name=topic,
            partition_id=partition,
            partition=services.v3.related(call, "topics", topic, "partitions", partition),
            lag=services.v3.related(call, "consumer-groups", group, "lags", topic, "partitions", partition),
        )
        for topic, partition in found.assignment
    ]
    return services.v3.listed(call, "KafkaConsumerAssignmentList", base, data)


lag_routes: Routes[RestServices] = v3_routes(TAG, "/consumer-groups/{consumer_group_id}")


async def owners(services: RestServices, call: Call) -> dict[TopicPartition, Member]:
    return owners_of(await _describe(services, call))


def show_lag(services: RestServices, call: Call, lag: CommittedOffset, member: Member | None) -> dict[str, object]:
    group = call["consumer_group_id"]
    return services.v3.resource(
        call,
        "KafkaConsumerLag",
        ("consumer-groups", group, "lags", lag.topic, "partitions", lag.partition),
        consumer_group_id=group,
        topic_name=lag.topic,
        partition_id=lag.partition,
        consumer_id=member.member_id if member is not None else "",
        instance_id=member.instance_id if member is not None else None,
        client_id=member.client_id if member is not None else "",
        current_offset=lag.offset,
        log_end_offset=lag.end,
        lag=lag.lag,
    )


@lag_routes.on("GET /lags", "List lags by partition.", answers={200: LIST_SHAPE})
async def lags(services: RestServices, call: Call) -> Response:
    owner = await owners(services, call)
    group = call["consumer_group_id"]
    found = await services.groups.lags(group)
    data = [show_lag(services, call, each, owner.get(TopicPartition(each.topic, each.partition))) for each in found]
    return services.v3.listed(call, "KafkaConsumerLagList", ("consumer-groups", group, "lags"), data)


@lag_routes.on("GET /lags/{topic_name}/partitions/{partition_id}", "Show the lag in a partition.")
async def lag(services: RestServices, call: Call) -> Response:
    owner = await owners(services, call)
    wanted = TopicPartition(call["topic_name"], call["partition_id"])
    for each in await services.groups.lags(call["consumer_group_id"]):
        if (each.topic, each.partition) == wanted:
            return json_response(show_lag(services, call, each, owner.get(wanted)))
    raise Problem(40402, "the group has no committed offset there", "list its lags to see its partitions")


@lag_routes.on("GET /lag-summary", "Show a summary of a group's lag.")
async def summary(services: RestServices, call: Call) -> Response:
    owner = await owners(services, call)
    group = call["consumer_group_id"]
    found = await services.groups.lags(group)
    if not found:
        raise Problem(40402, f"group {group} has no committed offsets", "it must read and commit first")
    worst = max(found, key=lambda each: each.lag)
    member = owner.get(TopicPartition(worst.topic, worst.partition))
    words = ("consumer-groups", group, "lag-summary")
    return json_response(
        services.v3.resource(
            call,
            "KafkaConsumerGroupLagSummary",
            words,
            f"consumer-groups={group}/lag-summary",
            consumer_group_id=group,
            max_lag_consumer_id=member.member_id if member is not None else "",
            max_lag_instance_id=member.instance_id if member is not None else None,
            max_lag_client_id=member.client_id if member is not None else "",
            max_lag_topic_name=worst.topic,
            max_lag_partition_id=worst.partition,
            max_lag=worst.lag,
            total_lag=sum(each.lag for each in found),
            max_lag_partition=services.v3.related(call, "topics", worst.topic, "partitions", worst.partition),
        )
    )
