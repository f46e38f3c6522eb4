"""REST Proxy v3: settings of topics and of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from penstock.client.operations import configs
from penstock.client.operations.configs import Config, DescribedConfig
from penstock.client.operations.topics import describe_cluster
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, v3_routes
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, json_object
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


TOPICS = _Kind("topics", "topic_name", configs.TOPIC, "KafkaTopicConfig")
BROKERS = _Kind("brokers", "broker_id", configs.BROKER, "KafkaBrokerConfig")

topic_routes = v3_routes(TAG, "/topics/{topic_name}/configs")
broker_routes = v3_routes(TAG, "/brokers/{broker_id}/configs")


def _kind_of(call: Call) -> _Kind:
    return TOPICS if TOPICS.parameter in call.parameters else BROKERS


async def _entries(services: RestServices, call: Call) -> dict[str, DescribedConfig]:
    kind, admin = _kind_of(call), services.admin
    if kind is TOPICS:
        await admin.partition_count(call["topic_name"])
    else:
        cluster = await admin.brokers.run(describe_cluster)
        if all(broker.node_id != call["broker_id"] for broker in cluster.brokers):
            raise Problem(40404, f"no broker {call['broker_id']}", "list the brokers first")
    return await admin.brokers.run(configs.describe_configs, kind.type, str(call[kind.parameter]))


async def _find(services: RestServices, call: Call) -> DescribedConfig:
    found = await _entries(services, call)
    if call["name"] not in found:
        raise Problem(40405, f"no setting {call['name'][:100]!r}", "list the settings to see them")
    return found[call["name"]]


def _show(services: RestServices, call: Call, entry: DescribedConfig) -> dict[str, object]:
    kind = _kind_of(call)
    return services.v3.resource(
        call,
        kind.name,
        (*kind.words(call), entry.name),
        **{kind.parameter: call[kind.parameter]},
        **shown(entry),
    )


async def _alter(
    services: RestServices, call: Call, changes: dict[str, str | None], *, validate: bool = False
) -> Response:
    kind = _kind_of(call)
    name = str(call[kind.parameter])
    await services.admin.brokers.run(configs.alter_configs, kind.type, name, changes, validate_only=validate)
    return Response(status_code=204)


@topic_routes.on("GET", "List settings.", answers={200: LIST_SHAPE})
@broker_routes.on("GET", "List settings.", answers={200: LIST_SHAPE})
async def listing(services: RestServices, call: Call) -> Response:
    found = await _entries(services, call)
    data = [_show(services, call, entry) for entry in found.values()]
    kind = _kind_of(call)
    return services.v3.listed(call, f"{kind.name}List", kind.words(call), data)


@topic_routes.on("GET /{name}", "Show a setting.")
@broker_routes.on("GET /{name}", "Show a setting.")
async def one(services: RestServices, call: Call) -> Response:
    return json_response(_show(services, call, await _find(services, call)))


@topic_routes.on("PUT /{name}", "Change a setting.", body=Body(VALUE_BODY), answers=NO_CONTENT)
@broker_routes.on("PUT /{name}", "Change a setting.", body=Body(VALUE_BODY), answers=NO_CONTENT)
async def put(services: RestServices, call: Call) -> Response:
    await _find(services, call)
    return await _alter(services, call, {call["name"]: call.body["value"]})


@topic_routes.on("DELETE /{name}", "Reset a setting to its default.", answers=NO_CONTENT)
@broker_routes.on("DELETE /{name}", "Reset a setting to its default.", answers=NO_CONTENT)
async def reset(services: RestServices, call: Call) -> Response:
    await _find(services, call)
    return await _alter(services, call, {call["name"]: None})


@topic_routes.on("POST :alter", "Change settings.", body=Body(ALTER_BODY), answers=NO_CONTENT)
@broker_routes.on("POST :alter", "Change settings.", body=Body(ALTER_BODY), answers=NO_CONTENT)
async def batch(services: RestServices, call: Call) -> Response:
    await _entries(services, call)
    changes = changes_of(call.body["data"])
    return await _alter(services, call, changes, validate=call.body.get("validate_only", False))


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


def shown(entry: DescribedConfig) -> dict[str, object]:
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
