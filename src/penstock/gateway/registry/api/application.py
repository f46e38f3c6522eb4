"""The registry's HTTP application: all its operations, contexts in paths, and its OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from urllib.parse import unquote

from starlette.responses import Response

from penstock.gateway.registry.api import schemas, settings, subjects, versions
from penstock.gateway.registry.api.access import with_rights
from penstock.gateway.registry.api.services import RegistryServices
from penstock.gateway.registry.api.shapes import PAGE, REGISTRY_TYPE, answer, page
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, context_of
from penstock.gateway.roles import ALL, REGISTRY, serving
from penstock.gateway.web.application import Application, BoundApplication, Load, ReadJson, json_response
from penstock.gateway.web.bodies import read_at_once
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.openapi import document
from penstock.gateway.web.operations import Call, Operation, Routes
from penstock.gateway.web.problem import Problem
from penstock.model.version import __version__

IN_CONTEXT = re.compile(r"/contexts/([^/]+)(/(?:compatibility/subjects|subjects|config|mode|schemas))(?:/([^/]*)(.*))?")


server_routes: Routes[RegistryServices] = Routes("Server")


@server_routes.on("GET /", "Check that the registry is up.")
async def root(_services: RegistryServices, _: Call) -> Response:
    return answer({})


@server_routes.on("GET /contexts", "List the contexts.", *PAGE)
async def contexts(services: RegistryServices, call: Call) -> Response:
    seen = await services.rights.readable(services.registry.state.subjects())
    return answer(page(call, sorted({DEFAULT_CONTEXT, *map(context_of, seen)})))


@server_routes.on("GET /v1/metadata/id", "Show the cluster's id.")
async def metadata_id(services: RegistryServices, _: Call) -> Response:
    scope = {
        "path": [],
        "clusters": {"kafka-cluster": services.cluster_id, "schema-registry-cluster": "schema-registry"},
    }
    return answer({"scope": scope, "id": ""})


@server_routes.on("GET /v1/metadata/version", "Show the version of the registry.")
async def metadata_version(_services: RegistryServices, _: Call) -> Response:
    return answer({"version": __version__, "commitId": ""})


def registry_operations() -> list[Operation[RegistryServices]]:
    """All operations of the registry, for callers with the rights that each requires."""
    routes = [*subjects.routes, *versions.routes, *versions.reading_routes, *schemas.routes, *settings.routes]
    return [*server_routes, *(_with_analyses(with_rights(operation)) for operation in routes)]


def _with_analyses(operation: Operation[RegistryServices]) -> Operation[RegistryServices]:
    """The operation, called again after analyses by workers that it needs."""
    handler = operation.handler

    async def handle(services: RegistryServices, call: Call) -> Response:
        return await services.registry.with_analyses(lambda: handler(services, call))

    return replace(operation, handler=handle)


def registry_application(
    limits: Limits, read_json: ReadJson = read_at_once, *, load: Load | None = None, roles: Collection[str] = ALL
) -> Application[RegistryServices]:
    """The application of the registry's port."""
    operations = [replace(operation, answer_type=REGISTRY_TYPE) for operation in registry_operations()]
    return Application(
        serving(REGISTRY, operations, roles),
        limits=limits,
        invalid_status=lambda _: 422,
        render_error=registry_error,
        rewrite=_rewrite,
        read_json=read_json,
        load=load,
    )


def public_registry(limits: Limits) -> BoundApplication:
    """The public resources of the registry's port, which need no sign-in."""
    described = document(
        [replace(each, answer_type=REGISTRY_TYPE) for each in registry_operations()],
        title="Penstock schema registry",
        version=__version__,
        description="Confluent's Schema Registry API for Avro, JSON Schema and Protobuf.",
        error_type=REGISTRY_TYPE,
    )
    itself = Operation("GET", "/openapi.json", _openapi, "Get the OpenAPI document of this API.", "Server")
    return Application([itself], limits=limits, render_error=registry_error).bind(described)


async def _openapi(described: Mapping[str, object], _: Call) -> Response:
    return json_response(described)


def registry_error(problem: Problem) -> Response:
    """A Problem in the form of the registry's errors."""
    response = answer(problem.as_json(), problem.status)
    response.headers.update(problem.headers)
    return response


def _rewrite(path: str) -> tuple[str, dict[str, str]]:
    """Rewrite a path below `/contexts/{context}` to the same path with a qualified subject."""
    match = IN_CONTEXT.fullmatch(path)
    if match is None:
        return path, {}
    context, resource, subject, rest = unquote(match[1]).strip(":"), match[2], match[3], match[4] or ""
    if resource == "/schemas":
        tail = f"/{subject}{rest}" if subject is not None else ""
        return f"{resource}{tail}", {"subject": f":{context}:", "subjectPrefix": f":{context}:"}
    if subject is None:
        return (
            (resource, {"subjectPrefix": f":{context}:"})
            if resource == "/subjects"
            else (f"{resource}/:{context}:", {})
        )
    return f"{resource}/:{context}:{subject}{rest}", {}
