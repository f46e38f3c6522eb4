"""`/api/v1/consumer-groups`: paged groups with their lag, one group with members and partitions, and offset resets."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from penstock.client.operations.groups import SHARE, Group
from penstock.client.operations.offsets import EARLIEST, LATEST
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups, is_consumer_group, owners_of, state_name
from penstock.gateway.rest.console.lags import PartitionLag, group_lags, share_lags, total_lag
from penstock.gateway.rest.console.topics import PAGING, matching, page_of
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import GROUP, INT64_MAX, PARTITION_SHAPE, TOPIC_SHAPE
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Routes, json_object
from penstock.gateway.web.problem import Problem
from penstock.model.ids import TopicPartition

TAG = "Groups (v1)"
BASE = "/api/v1/consumer-groups"
LAG_TIMEOUT_S = 3.0
GROUP_TIMEOUT_S = 6.0
RESET_BODY = json_object(
    ["topic", "to"],
    topic=TOPIC_SHAPE,
    partitions={"type": "array", "items": PARTITION_SHAPE, "minItems": 1, "maxItems": 10_000},
    to={"enum": ["earliest", "latest", "offset", "time", "shift"]},
    value={"type": "integer", "minimum": -INT64_MAX, "maximum": INT64_MAX},
    dry_run={"type": "boolean"},
)
RESET_EXAMPLE = {"topic": "orders", "to": "time", "value": 1767225600000, "dry_run": True}


routes: Routes[RestServices] = Routes(TAG, BASE, (GROUP,))


@routes.on(
    "GET",
    "List groups with their lag, one page at a time.",
    *PAGING,
    answers={200: json_object(["groups", "total", "page", "pages"])},
)
async def listing(services: RestServices, call: Call) -> Response:
    listed, problems = await services.groups.listed()
    known = {group.group_id: group for group in listed if is_consumer_group(group) or group.type == SHARE}
    chosen, shown = page_of(sorted(matching(known, call["search"])), call)
    others = [name for name in chosen if known[name].type != SHARE]
    described = await _describe(services.groups, chosen)
    found = await asyncio.gather(
        *(_lag_of(services.admin, services.groups, name, described.get(name)) for name in others)
    )
    shared = await share_lags(services.groups, [group for group in described.values() if group.type == SHARE])
    lags = dict(zip(others, found, strict=True)) | {name: total_lag(rows) for name, rows in shared.items()}
    shown["groups"] = [
        {"name": name, "state": _state(known[name]), "type": _type(known[name]), "lag": lags.get(name)}
        for name in chosen
    ]
    # The groups of a broker that is down move to another one; until then the list is marked as incomplete.
    shown["notes"] = [problem.message for problem in problems]
    return json_response(shown)


async def describe_with_lags(services: RestServices, name: str) -> tuple[Group, list[PartitionLag]]:
    group = (await services.groups.describe([name])).get(name)
    if group is None or not (is_consumer_group(group) or group.type == SHARE):
        raise Problem(40405, f"no consumer group {name[:100]}", "list the groups to see their names")
    if group.type != SHARE:
        return group, await group_lags(services.admin, services.groups, name, owners_of(group))
    rows = (await share_lags(services.groups, [group])).get(name, [])
    ends = await services.groups.offsets([TopicPartition(row.topic, row.partition) for row in rows], LATEST)
    return group, [row._replace(end=ends.get(TopicPartition(row.topic, row.partition))) for row in rows]


@routes.on("GET /{group}", "Show a group's members, partitions and lag.")
async def one(services: RestServices, call: Call) -> Response:
    name = call["group"]
    try:
        group, lags = await asyncio.wait_for(describe_with_lags(services, name), GROUP_TIMEOUT_S)
    except TimeoutError:
        raise Problem(50301, f"the coordinator of group {name} did not answer", "try again") from None
    # Members of a share group read the same partitions.
    owners = owners_of(group) if group.type != SHARE else {}
    members = {place: member.member_id for place, member in owners.items()}
    rows = [{**lag._asdict(), "member": members.get(TopicPartition(lag.topic, lag.partition))} for lag in lags]
    services.lag_history.note(name, lags)
    return json_response(
        {**_show(group), "partitions": rows, "lag": total_lag(lags), "history": services.lag_history.show(name)}
    )


@routes.on("DELETE /{group}", "Delete a group that has no members.", answers=NO_CONTENT)
async def delete(services: RestServices, call: Call) -> Response:
    await services.groups.delete(call["group"])
    services.lag_history.forget(call["group"])
    return Response(status_code=204)


reset_routes: Routes[RestServices] = Routes(TAG, BASE, (GROUP,))


@reset_routes.on(
    "POST /{group}/reset",
    "Reset the offsets of a group without members: to the start, the end, an offset, a time, or by a delta.",
    body=Body(RESET_BODY, example=RESET_EXAMPLE),
    answers={200: json_object(["moves"])},
)
async def reset(services: RestServices, call: Call) -> Response:
    name, body = call["group"], call.body
    targets = await _targets(services.admin, services.groups, name, body)
    before = await services.groups.committed(name)
    moves = [
        {"topic": topic, "partition": partition, "from": before.get(TopicPartition(topic, partition)), "to": offset}
        for (topic, partition), offset in sorted(targets.items())
    ]
    if not body.get("dry_run", False):
        await services.groups.commit(name, targets)
    return json_response({"group": name, "dry_run": body.get("dry_run", False), "moves": moves})


async def _describe(groups: Groups, names: list[str]) -> dict[str, Group]:
    """The groups with their members; none if a coordinator does not answer in time."""
    try:
        return await asyncio.wait_for(groups.describe(names), LAG_TIMEOUT_S)
    except (TimeoutError, Problem):
        return {}


async def _lag_of(admin: Admin, groups: Groups, name: str, group: Group | None) -> int | None:
    """A group's lag; None if it takes too long, so that one slow coordinator does not delay the page."""
    assigned = owners_of(group) if group is not None else ()
    try:
        return total_lag(await asyncio.wait_for(group_lags(admin, groups, name, assigned), LAG_TIMEOUT_S))
    except (TimeoutError, Problem):
        return None


def _state(group: Group) -> str:
    return state_name(group).lower().replace("_", " ")


def _type(group: Group) -> str:
    return group.type or "unknown"


def _show(group: Group) -> dict[str, object]:
    return {
        "name": group.group_id,
        "state": _state(group),
        "type": _type(group),
        "assignor": group.assignor,
        "coordinator": group.coordinator.node_id if group.coordinator is not None else None,
        "members": [
            {
                "id": member.member_id,
                "client_id": member.client_id,
                "instance_id": member.instance_id,
                "host": member.host,
                "partitions": len(member.assignment),
            }
            for member in group.members
        ],
    }


async def _targets(admin: Admin, groups: Groups, name: str, body: dict[str, Any]) -> dict[TopicPartition, int]:
    """The offset to commit for each partition, limited to the offsets that exist."""
    topic, to = body["topic"], body["to"]
    count = await admin.partition_count(topic)
    numbers = sorted(set(body.get("partitions") or range(count)))
    if numbers[-1] >= count:
        raise Problem(40402, f"topic {topic} has no partition {numbers[-1]}", f"use 0 to {count - 1}")
    if to in ("offset", "time", "shift") and body.get("value") is None:
        raise Problem(40001, f"a reset to {to} needs a value", "add an integer as `value`")
    value = int(body.get("value") or 0)
    keys = [TopicPartition(topic, number) for number in numbers]
    starts = await groups.offsets(keys, EARLIEST)
    ends = await groups.offsets(keys, LATEST)
    missing = [number for key, number in zip(keys, numbers, strict=True) if key not in starts or key not in ends]
    if missing:
        raise Problem(50301, f"the offsets of {topic} {missing[:5]} are not available", "try again in a moment")
    if to == "earliest":
        return starts
    if to == "latest":
        return ends
    if to == "time":
        if value < 0:
            raise Problem(40001, "a time must not be negative", "use milliseconds since 1970")
        timed = await groups.offsets(keys, value)
        return {key: timed[key] if timed.get(key, -1) >= 0 else ends[key] for key in keys}
    committed = await groups.committed(name) if to == "shift" else {}
    wanted = {key: committed.get(key, starts[key]) + value if to == "shift" else value for key in keys}
    return {key: min(max(offset, starts[key]), ends[key]) for key, offset in wanted.items()}
