"""`/api/v1/consumer-groups`: paged groups with their lag, one group with members and partitions, and offset resets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka.admin._listoffsets import OffsetSpec
from starlette.responses import Response

from penstock.gateway.kafka.admin import Admin, ask, result_of
from penstock.gateway.kafka.errors import checked_call, problem_of
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.rest.console.lags import LagHistory, PartitionKey, PartitionLag, group_lags, total_lag
from penstock.gateway.rest.console.share_groups import SHARE, ShareGroups
from penstock.gateway.rest.console.topics import PAGING, matching, page_of
from penstock.gateway.rest.shapes import GROUP, INT64_MAX, PARTITION_SHAPE, TOPIC_SHAPE
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Operation, Routes, json_object
from penstock.gateway.web.problem import Problem

TAG = "Groups (v1)"
BASE = "/api/v1/consumer-groups"
LAG_TIMEOUT_S = 3.0
LIST_TIMEOUT_S = 4.0
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


def group_operations(admin: Admin, groups: Groups, shares: ShareGroups) -> list[Operation]:
    """Operations that list, show and delete groups."""
    routes = Routes(TAG, BASE, (GROUP,))
    history = LagHistory()

    @routes.on(
        "GET",
        "List groups with their lag, one page at a time.",
        *PAGING,
        answers={200: json_object(["groups", "total", "page", "pages"])},
    )
    async def listing(call: Call) -> Response:
        answer = await ask(admin.client.list_consumer_groups, request_timeout=LIST_TIMEOUT_S)
        known = {each.group_id: (_word(each.state), _word(each.type)) for each in answer.valid}
        known |= {name: (state, SHARE) for name, state in (await shares.states()).items()}
        chosen, shown = page_of(sorted(matching(known, call["search"])), call)
        others = [name for name in chosen if known[name][1] != SHARE]
        assigned = await _assignments(admin, others)
        found = await asyncio.gather(*(_lag_of(admin, groups, name, assigned.get(name, ())) for name in others))
        lags = {
            **dict(zip(others, found, strict=True)),
            **await shares.total_lags([name for name in chosen if known[name][1] == SHARE]),
        }
        shown["groups"] = [
            {"name": name, "state": known[name][0], "type": known[name][1], "lag": lags.get(name)} for name in chosen
        ]
        # The groups of a broker that is down move to another one; until then the list is marked as incomplete.
        shown["notes"] = [problem_of(error).message for error in answer.errors or ()]
        return json_response(shown)

    async def describe_with_lags(name: str) -> tuple[Any, list[PartitionLag]]:
        group = await ask(admin.client.describe_consumer_groups, [name])
        return group, await group_lags(admin, groups, name, owners_of(group))

    @routes.on("GET /{group}", "Show a group's members, partitions and lag.")
    async def one(call: Call) -> Response:
        name = call["group"]
        try:
            group, lags = await asyncio.wait_for(describe_with_lags(name), GROUP_TIMEOUT_S)
        except TimeoutError:
            raise Problem(50301, f"the coordinator of group {name} did not answer", "try again") from None
        if _word(group.state) in ("dead", "unknown") and not group.members and not lags:
            if (shared := await shares.one(name)) is not None:
                described, lags = shared
                return show(name, described, lags, {})
            raise Problem(40405, f"no consumer group {name[:100]}", "list the groups to see their names")
        return show(name, _show(group), lags, owners_of(group))

    def show(
        name: str, described: dict[str, Any], lags: list[PartitionLag], owners: Mapping[PartitionKey, str]
    ) -> Response:
        rows = [{**lag._asdict(), "member": owners.get((lag.topic, lag.partition))} for lag in lags]
        history.note(name, lags)
        return json_response({**described, "partitions": rows, "lag": total_lag(lags), "history": history.show(name)})

    @routes.on("DELETE /{group}", "Delete a group that has no members.", answers=NO_CONTENT)
    async def delete(call: Call) -> Response:
        await ask(admin.client.delete_consumer_groups, [call["group"]])
        history.forget(call["group"])
        return Response(status_code=204)

    return routes


def reset_operations(admin: Admin, groups: Groups) -> list[Operation]:
    """Offset resets."""
    routes = Routes(TAG, BASE, (GROUP,))

    @routes.on(
        "POST /{group}/reset",
        "Reset the offsets of a group without members: to the start, the end, an offset, a time, or by a delta.",
        body=Body(RESET_BODY, example=RESET_EXAMPLE),
        answers={200: json_object(["moves"])},
    )
    async def reset(call: Call) -> Response:
        name, body = call["group"], call.body
        targets = await _targets(admin, groups, name, body)
        before = await groups.committed(name)
        moves = [
            {"topic": topic, "partition": partition, "from": before.get((topic, partition)), "to": offset}
            for (topic, partition), offset in sorted(targets.items())
        ]
        if not body.get("dry_run", False):
            await groups.commit(name, targets)
        return json_response({"group": name, "dry_run": body.get("dry_run", False), "moves": moves})

    return routes


def owners_of(group: Any) -> dict[PartitionKey, str]:
    """The member that each partition is assigned to."""
    return {
        (each.topic, each.partition): member.member_id
        for member in group.members
        for each in (member.assignment.topic_partitions if member.assignment else ())
    }


async def _assignments(admin: Admin, names: list[str]) -> dict[str, dict[PartitionKey, str]]:
    """The partitions assigned to the groups' members; groups whose coordinator does not answer in time are left out."""
    if not names:
        return {}
    futures = checked_call(admin.client.describe_consumer_groups, names, request_timeout=LAG_TIMEOUT_S)
    found = {}
    for name, future in futures.items():
        try:
            found[name] = owners_of(await result_of(future))
        except Problem:
            continue
    return found


async def _lag_of(admin: Admin, groups: Groups, name: str, assigned: Iterable[PartitionKey]) -> int | None:
    """A group's lag; None if it takes too long, so that one slow coordinator does not delay the page."""
    try:
        return total_lag(await asyncio.wait_for(group_lags(admin, groups, name, assigned), LAG_TIMEOUT_S))
    except (TimeoutError, Problem):
        return None


def _word(value: Any) -> str:
    name = getattr(value, "name", None)
    return str(name).lower().replace("_", " ") if name else "unknown"


def _show(group: Any) -> dict[str, Any]:
    return {
        "name": group.group_id,
        "state": _word(group.state),
        "type": _word(getattr(group, "type", None)),
        "assignor": group.partition_assignor or "",
        "coordinator": group.coordinator.id if group.coordinator is not None else None,
        "members": [
            {
                "id": member.member_id,
                "client_id": member.client_id,
                "instance_id": member.group_instance_id,
                "host": member.host,
                "partitions": len(member.assignment.topic_partitions) if member.assignment else 0,
            }
            for member in group.members
        ],
    }


async def _targets(admin: Admin, groups: Groups, name: str, body: dict[str, Any]) -> dict[tuple[str, int], int]:
    """The offset to commit for each partition, limited to the offsets that exist."""
    topic, to = body["topic"], body["to"]
    count = await admin.partition_count(topic)
    numbers = sorted(set(body.get("partitions") or range(count)))
    if numbers[-1] >= count:
        raise Problem(40402, f"topic {topic} has no partition {numbers[-1]}", f"use 0 to {count - 1}")
    if to in ("offset", "time", "shift") and body.get("value") is None:
        raise Problem(40001, f"a reset to {to} needs a value", "add an integer as `value`")
    value = int(body.get("value") or 0)
    keys = [(topic, number) for number in numbers]
    starts = await groups.offsets(keys, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = await groups.offsets(keys, OffsetSpec.latest())  # type: ignore[no-untyped-call]
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
        timed = await groups.offsets(keys, checked_call(OffsetSpec.for_timestamp, value))
        return {key: timed[key] if timed.get(key, -1) >= 0 else ends[key] for key in keys}
    committed = await groups.committed(name) if to == "shift" else {}
    wanted = {key: committed.get(key, starts[key]) + value if to == "shift" else value for key in keys}
    return {key: min(max(offset, starts[key]), ends[key]) for key, offset in wanted.items()}
