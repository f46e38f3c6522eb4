"""`/api/v1/pipelines`: the state that Spark pipelines report in the topic `_pipelines`."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes, json_object

routes: Routes[RestServices] = Routes("Pipelines (v1)")


@routes.on(
    "GET /api/v1/pipelines",
    "List the pipelines of the last week with their queries: state, rows, speed, lag, dead letters.",
    answers={200: json_object(["pipelines"])},
)
async def listing(services: RestServices, _: Call) -> Response:
    return json_response({"pipelines": await services.pipeline_reports.latest()})
