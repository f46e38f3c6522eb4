"""REST Proxy v3: cluster-wide broker settings, `/v3/clusters/{cluster_id}/broker-configs`.

librdkafka cannot address the cluster-wide default, so Penstock's own client is used. Only what was set is listed.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin._config import AlterConfigOpType
from starlette.responses import Response

from penstock.gateway.kafka.broker_requests import BrokerWire, check
from penstock.gateway.rest.v3.configs import ALTER_BODY, TAG, VALUE_BODY, changes_of, source_name
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import NO_CONTENT, Body, Call, Operation
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

BROKER_TYPE = 4
ALL_BROKERS = ""


def v3_cluster_config_operations(wire: BrokerWire, v3: V3) -> list[Operation]:
    """Operations on cluster-wide broker settings."""
    routes = v3.routes(TAG, "/broker-configs")

    async def entries() -> dict[str, DescribeConfigsResourceResult]:
        resource = DescribeConfigsResource(BROKER_TYPE, ALL_BROKERS, None)
        response: DescribeConfigsResponse = await wire.ask(DescribeConfigsRequest([resource], include_synonyms=True))
        [result] = response.results
        check(result.error_code, result.error_message, "cannot list the settings")
        return {each.name: each for each in result.configs}

    def show(call: Call, entry: DescribeConfigsResourceResult) -> dict[str, Any]:
        return v3.resource(
            call,
            "KafkaClusterConfig",
            ("broker-configs", entry.name),
            config_type="BROKER",
            name=entry.name,
            value=entry.value,
            is_default=False,
            is_read_only=entry.read_only,
            is_sensitive=entry.is_sensitive,
            source=source_name(entry.config_source),
            synonyms=[
                {"name": each.name, "value": each.value, "source": source_name(each.source)} for each in entry.synonyms
            ],
        )

    @routes.on("GET", "List cluster-wide broker settings.", answers={200: LIST_SHAPE})
    async def listing(call: Call) -> Response:
        found = await entries()
        data = [show(call, found[name]) for name in sorted(found)]
        return v3.listed(call, "KafkaClusterConfigList", ("broker-configs",), data)

    @routes.on("GET /{name}", "Show a cluster-wide broker setting.")
    async def one(call: Call) -> Response:
        found = (await entries()).get(call["name"])
        if found is None:
            raise Problem(40405, f"{call['name'][:100]!r} is not set cluster-wide", "PUT sets it")
        return json_response(show(call, found))

    async def alter(changes: list[tuple[str, str | None]], *, validate: bool = False) -> Response:
        configs = [
            AlterableConfig(name, (AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET).value, value)
            for name, value in changes
        ]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_TYPE, ALL_BROKERS, configs)], validate)
        response: IncrementalAlterConfigsResponse = await wire.ask(request)
        for result in response.responses:
            check(result.error_code, result.error_message, "cannot change the settings")
        return Response(status_code=204)

    @routes.on("PUT /{name}", "Change a cluster-wide broker setting.", body=Body(VALUE_BODY), answers=NO_CONTENT)
    async def put(call: Call) -> Response:
        return await alter([(call["name"], call.body["value"])])

    @routes.on("DELETE /{name}", "Remove a cluster-wide broker setting.", answers=NO_CONTENT)
    async def reset(call: Call) -> Response:
        return await alter([(call["name"], None)])

    @routes.on("POST :alter", "Change cluster-wide broker settings.", body=Body(ALTER_BODY), answers=NO_CONTENT)
    async def batch(call: Call) -> Response:
        return await alter(changes_of(call.body["data"]), validate=call.body.get("validate_only", False))

    return routes
