"""REST Proxy v3: cluster-wide broker settings, `/v3/clusters/{cluster_id}/broker-configs`; those that were set."""

from __future__ import annotations

from starlette.responses import Response

from penstock.client.operations.configs import ALL_BROKERS, BROKER, DescribedConfig, alter_configs, describe_configs
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.configs import ALTER_BODY, TAG, VALUE_BODY, changes_of, shown
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, v3_routes
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Routes
from penstock.gateway.web.problem import Problem

routes: Routes[RestServices] = v3_routes(TAG, "/broker-configs")


async def entries(services: RestServices) -> dict[str, DescribedConfig]:
    return await services.admin.brokers.run(describe_configs, BROKER, ALL_BROKERS)


def show(services: RestServices, call: Call, entry: DescribedConfig) -> dict[str, object]:
    return services.v3.resource(
        call, "KafkaClusterConfig", ("broker-configs", entry.name), config_type="BROKER", **shown(entry)
    )


@routes.on("GET", "List cluster-wide broker settings.", answers={200: LIST_SHAPE})
async def listing(services: RestServices, call: Call) -> Response:
    data = [show(services, call, entry) for entry in (await entries(services)).values()]
    return services.v3.listed(call, "KafkaClusterConfigList", ("broker-configs",), data)


@routes.on("GET /{name}", "Show a cluster-wide broker setting.")
async def one(services: RestServices, call: Call) -> Response:
    found = (await entries(services)).get(call["name"])
    if found is None:
        raise Problem(40405, f"{call['name'][:100]!r} is not set cluster-wide", "PUT sets it")
    return json_response(show(services, call, found))


async def alter(services: RestServices, changes: dict[str, str | None], *, validate: bool = False) -> Response:
    await services.admin.brokers.run(alter_configs, BROKER, ALL_BROKERS, changes, validate_only=validate)
    return Response(status_code=204)


@routes.on("PUT /{name}", "Change a cluster-wide broker setting.", body=Body(VALUE_BODY), answers=NO_CONTENT)
async def put(services: RestServices, call: Call) -> Response:
    return await alter(services, {call["name"]: call.body["value"]})


@routes.on("DELETE /{name}", "Remove a cluster-wide broker setting.", answers=NO_CONTENT)
async def reset(services: RestServices, call: Call) -> Response:
    return await alter(services, {call["name"]: None})


@routes.on("POST :alter", "Change cluster-wide broker settings.", body=Body(ALTER_BODY), answers=NO_CONTENT)
async def batch(services: RestServices, call: Call) -> Response:
    return await alter(services, changes_of(call.body["data"]), validate=call.body.get("validate_only", False))
