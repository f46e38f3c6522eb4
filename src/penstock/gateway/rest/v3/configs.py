"""REST Proxy v3: settings of topics and of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from penstock.client.operations import configs
from penstock.client.operations.configs import Config, DescribedConfig
from penstock.client.operations.topics import describe_cluster
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Operation, json_object
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: settings"
ALTER_BODY = json_object(
    ["data"],
    data={
        "type": "array",
        "minItems": 1,
        "items": json_object(
            ["name"],
            name={"type": "string", "minLength": 1},
            value={"type": ["string", "null"]},
            operation={"enum": ["SET", "DELETE", None]},
        ),
    },
    validate_only={"type": "boolean"},
)
VALUE_BODY = json_object(["value"], value={"type": ["string", "null"]})


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of resource that has settings: its segment and parameter in paths, its type in Kafka and in responses."""

    segment: str
    parameter: str
    type: int
    name: str

    def words(self, call: Call) -> tuple[object, ...]:
        return self.segment, call[self.parameter], "configs"


KINDS = (
    _Kind("topics", "topic_name", configs.TOPIC, "KafkaTopicConfig"),
    _Kind("brokers", "broker_id", configs.BROKER, "KafkaBrokerConfig"),
)


def v3_config_operations(admin: Admin, v3: V3) -> list[Operation]:
    """Operations on the settings of topics and brokers."""
    return [operation for kind in KINDS for operation in _operations(admin, v3, kind)]


def _operations(admin: Admin, v3: V3, kind: _Kind) -> list[Operation]:
    routes = v3.routes(TAG, f"/{kind.segment}/{{{kind.parameter}}}/configs")

    async def entries(call: Call) -> dict[str, DescribedConfig]:
        if "topic_name" in call.parameters:
            await admin.partition_count(call["topic_name"])
        elif "broker_id" in call.parameters:
            cluster = await admin.brokers.run(describe_cluster)
            if all(broker.node_id != call["broker_id"] for broker in cluster.brokers):
                raise Problem(40404, f"no broker {call['broker_id']}", "list the brokers first")
        return await admin.brokers.run(configs.describe_configs, kind.type, str(call[kind.parameter]))

    def show(call: Call, entry: DescribedConfig) -> dict[str, Any]:
        return v3.resource(
            call,
            kind.name,
            (*kind.words(call), entry.name),
            **{kind.parameter: call[kind.parameter]},
            **shown(entry),
        )

    @routes.on("GET", "List settings.", answers={200: LIST_SHAPE})
    async def listing(call: Call) -> Response:
        found = await entries(call)
        data = [show(call, entry) for entry in found.values()]
        return v3.listed(call, f"{kind.name}List", kind.words(call), data)

    async def find(call: Call) -> DescribedConfig:
        found = await entries(call)
        if call["name"] not in found:
            raise Problem(40405, f"no setting {call['name'][:100]!r}", "list the settings to see them")
        return found[call["name"]]

    @routes.on("GET /{name}", "Show a setting.")
    async def one(call: Call) -> Response:
        return json_response(show(call, await find(call)))

    async def alter(call: Call, changes: dict[str, str | None], *, validate: bool = False) -> Response:
        name = str(call[kind.parameter])
        await admin.brokers.run(configs.alter_configs, kind.type, name, changes, validate_only=validate)
        return Response(status_code=204)

    @routes.on("PUT /{name}", "Change a setting.", body=Body(VALUE_BODY), answers=NO_CONTENT)
    async def put(call: Call) -> Response:
        await find(call)
        return await alter(call, {call["name"]: call.body["value"]})

    @routes.on("DELETE /{name}", "Reset a setting to its default.", answers=NO_CONTENT)
    async def reset(call: Call) -> Response:
        await find(call)
        return await alter(call, {call["name"]: None})

    @routes.on("POST :alter", "Change settings.", body=Body(ALTER_BODY), answers=NO_CONTENT)
    async def batch(call: Call) -> Response:
        await entries(call)
        return await alter(call, changes_of(call.body["data"]), validate=call.body.get("validate_only", False))

    return routes


def changes_of(data: list[dict[str, Any]]) -> dict[str, str | None]:
    """The names and new values in a body that changes several settings; None resets to the default."""
    names = [each["name"] for each in data]
    if len(set(names)) < len(names):
        raise Problem(40002, "a setting is changed twice", "name each setting once")
    changes: dict[str, str | None] = {}
    for each in data:
        deleting = each.get("operation") == "DELETE"
        if not deleting and each.get("value") is None:
            raise Problem(40002, f"setting {each['name'][:100]!r} has no value", "send one, or DELETE it")
        changes[each["name"]] = None if deleting else each["value"]
    return changes


def shown(entry: DescribedConfig) -> dict[str, Any]:
    """The fields of a setting."""
    return {
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.source == configs.DEFAULT,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "source": _source_name(entry),
        "synonyms": [{"name": each.name, "value": each.value, "source": _source_name(each)} for each in entry.synonyms],
    }


def _source_name(config: Config) -> str:
    """Where a value comes from, by Kafka's name."""
    if config.source == configs.UNKNOWN:
        return "UNKNOWN"
    return f"{config.source.upper().replace(' ', '_')}_CONFIG"
