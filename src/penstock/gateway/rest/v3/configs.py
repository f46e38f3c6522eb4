"""REST Proxy v3: settings of topics and of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType
from starlette.responses import Response

from penstock.gateway.kafka.admin import Admin, ask
from penstock.gateway.kafka.errors import checked_call
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
    type: ResourceType
    name: str

    def words(self, call: Call) -> tuple[object, ...]:
        return self.segment, call[self.parameter], "configs"

    def resource(self, call: Call) -> ConfigResource:
        return ConfigResource(self.type, str(call[self.parameter]))


KINDS = (
    _Kind("topics", "topic_name", ResourceType.TOPIC, "KafkaTopicConfig"),
    _Kind("brokers", "broker_id", ResourceType.BROKER, "KafkaBrokerConfig"),
)


def v3_config_operations(admin: Admin, v3: V3) -> list[Operation]:
    """Operations on the settings of topics and brokers."""
    return [operation for kind in KINDS for operation in _operations(admin, v3, kind)]


def _operations(admin: Admin, v3: V3, kind: _Kind) -> list[Operation]:
    routes = v3.routes(TAG, f"/{kind.segment}/{{{kind.parameter}}}/configs")

    async def entries(call: Call) -> dict[str, ConfigEntry]:
        if "topic_name" in call.parameters:
            await admin.partition_count(call["topic_name"])
        elif "broker_id" in call.parameters:
            cluster = await ask(admin.client.describe_cluster)
            if all(node.id != call["broker_id"] for node in cluster.nodes):
                raise Problem(40404, f"no broker {call['broker_id']}", "list the brokers first")
        found: dict[str, ConfigEntry] = await ask(admin.client.describe_configs, [kind.resource(call)])
        return found

    def show(call: Call, entry: ConfigEntry) -> dict[str, Any]:
        return v3.resource(
            call,
            kind.name,
            (*kind.words(call), entry.name),
            **{kind.parameter: call[kind.parameter]},
            name=entry.name,
            value=entry.value,
            is_default=bool(entry.is_default),
            is_read_only=bool(entry.is_read_only),
            is_sensitive=bool(entry.is_sensitive),
            source=source_name(entry.source),
            synonyms=[
                {"name": each.name, "value": each.value, "source": source_name(each.source)}
                for each in (entry.synonyms or {}).values()
            ],
        )

    @routes.on("GET", "List settings.", answers={200: LIST_SHAPE})
    async def listing(call: Call) -> Response:
        found = await entries(call)
        data = [show(call, found[name]) for name in sorted(found)]
        return v3.listed(call, f"{kind.name}List", kind.words(call), data)

    async def find(call: Call) -> ConfigEntry:
        found = await entries(call)
        if call["name"] not in found:
            raise Problem(40405, f"no setting {call['name'][:100]!r}", "list the settings to see them")
        return found[call["name"]]

    @routes.on("GET /{name}", "Show a setting.")
    async def one(call: Call) -> Response:
        return json_response(show(call, await find(call)))

    async def alter(call: Call, changes: list[tuple[str, str | None]], *, validate: bool = False) -> Response:
        resource = kind.resource(call)
        for name, value in changes:
            operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            entry = checked_call(ConfigEntry, name, value, incremental_operation=operation)
            checked_call(resource.add_incremental_config, entry)
        await ask(admin.client.incremental_alter_configs, [resource], validate_only=validate)
        return Response(status_code=204)

    @routes.on("PUT /{name}", "Change a setting.", body=Body(VALUE_BODY), answers=NO_CONTENT)
    async def put(call: Call) -> Response:
        await find(call)
        return await alter(call, [(call["name"], call.body["value"])])

    @routes.on("DELETE /{name}", "Reset a setting to its default.", answers=NO_CONTENT)
    async def reset(call: Call) -> Response:
        await find(call)
        return await alter(call, [(call["name"], None)])

    @routes.on("POST :alter", "Change settings.", body=Body(ALTER_BODY), answers=NO_CONTENT)
    async def batch(call: Call) -> Response:
        await entries(call)
        return await alter(call, changes_of(call.body["data"]), validate=call.body.get("validate_only", False))

    return routes


def changes_of(data: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """The names and new values in a body that changes several settings; None resets to the default."""
    names = [each["name"] for each in data]
    if len(set(names)) < len(names):
        raise Problem(40002, "a setting is changed twice", "name each setting once")
    changes = []
    for each in data:
        deleting = each.get("operation") == "DELETE"
        if not deleting and each.get("value") is None:
            raise Problem(40002, f"setting {each['name'][:100]!r} has no value", "send one, or DELETE it")
        changes.append((each["name"], None if deleting else each["value"]))
    return changes


def source_name(number: int | ConfigSource) -> str:
    """Where a setting comes from, by Kafka's name."""
    try:
        return ConfigSource(number).name
    except ValueError:
        return "UNKNOWN"
