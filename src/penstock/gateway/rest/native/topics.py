"""`/topics`: create and delete topics.

POST /topics               {"name": "orders", "partitions": 3, "retentionPolicy": "7d"}
DELETE /topics/{topic}
"""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.shapes import INT32_MAX, REPLICATION_FACTOR_MAX, TOPIC, TOPIC_SHAPE
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, closed_object, json_object
from penstock.gateway.web.problem import Problem

TAG = "Topics and messages"
PARTITIONS_MAX = 10_000
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d|w)")
FOREVER = ("forever", "unlimited", "infinite", "none")

TOPIC_BODY = json_object(
    ["name"],
    name=TOPIC_SHAPE,
    partitions={"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX, "default": 1},
    replicationFactor={"type": "integer", "minimum": 1, "maximum": REPLICATION_FACTOR_MAX},
    retentionPolicy={
        "description": "A duration (7d, 12h, 30m), forever, compact, or an object.",
        "oneOf": [
            {"type": "string", "pattern": r"^(\d{1,15}\s*(ms|s|m|h|d|w)|forever|unlimited|infinite|none|compact)$"},
            closed_object(
                timeMs={"type": "integer", "minimum": -1, "maximum": (1 << 63) - 1},
                sizeBytes={"type": "integer", "minimum": -1, "maximum": (1 << 63) - 1},
                compact={"type": "boolean"},
            ),
        ],
    },
    configs={"type": "object", "additionalProperties": {"type": "string"}},
)
CREATED = json_object(["name", "partitions"])


routes: Routes[RestServices] = Routes(TAG, "/topics", (TOPIC,))


@routes.on(
    "POST",
    "Create a topic.",
    body=Body(TOPIC_BODY, example={"name": "orders", "partitions": 3, "retentionPolicy": "7d"}),
    answers={201: CREATED},
)
async def create(services: RestServices, call: Call) -> Response:
    body = call.body
    configs = {**retention_configs(body.get("retentionPolicy")), **body.get("configs", {})}
    partitions = body.get("partitions", 1)
    await services.admin.create(body["name"], partitions, body.get("replicationFactor", -1), configs)
    shown: dict[str, object] = {"name": body["name"], "partitions": partitions, "configs": configs}
    if "retentionPolicy" in body:
        shown["retentionPolicy"] = body["retentionPolicy"]
    return json_response(shown, 201, headers={"Location": f"/topics/{body['name']}"})


@routes.on("DELETE /{topic}", "Delete a topic and its records.")
async def delete(services: RestServices, call: Call) -> Response:
    await services.admin.delete(call["topic"])
    return json_response({"name": call["topic"], "deleted": True})


def retention_configs(policy: Any) -> dict[str, str]:
    """The topic settings that a retention policy stands for."""
    if policy is None:
        return {}
    if isinstance(policy, dict):
        configs = {}
        if "timeMs" in policy:
            configs["retention.ms"] = str(policy["timeMs"])
        if "sizeBytes" in policy:
            configs["retention.bytes"] = str(policy["sizeBytes"])
        if policy.get("compact"):
            configs["cleanup.policy"] = "compact,delete" if configs else "compact"
        return configs
    if policy == "compact":
        return {"cleanup.policy": "compact"}
    if policy in FOREVER:
        return {"retention.ms": "-1"}
    match = DURATION.fullmatch(policy)
    if match is None:
        raise Problem(40002, f"{policy!r} is not a retention policy", "use 7d, 12h, forever or compact")
    milliseconds = int(match[1]) * UNIT_MS[match[2]]
    if milliseconds > INT32_MAX * 1_000_000:
        raise Problem(40002, f"{policy!r} is too long", "use forever")
    return {"retention.ms": str(milliseconds)}
