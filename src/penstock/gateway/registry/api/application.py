"""The registry's HTTP application: all its operations, contexts in paths, and its OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from urllib.parse import unquote

from starlette.responses import Response

from penstock.gateway.registry.api.access import with_rights
from penstock.gateway.registry.api.schemas import schema_operations
from penstock.gateway.registry.api.settings import settings_operations
from penstock.gateway.registry.api.shapes import PAGE, REGISTRY_TYPE, answer, page
from penstock.gateway.registry.api.subjects import subject_operations
from penstock.gateway.registry.api.versions import version_operations
from penstock.gateway.registry.rights import ALL_RIGHTS, SubjectRights
from penstock.gateway.registry.service import Registry
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, context_of
from penstock.gateway.roles import ALL, REGISTRY, serving
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.application import Application, Load, ReadJson, json_response
from penstock.gateway.web.bodies import read_at_once
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.openapi import document
from penstock.gateway.web.operations import Call, Operation, Routes
from penstock.gateway.web.problem import Problem
from penstock.model.version import __version__

IN_CONTEXT = re.compile(r"/contexts/([^/]+)(/(?:compatibility/subjects|subjects|config|mode|schemas))(?:/([^/]*)(.*))?")


def registry_operations(registry: Registry, cluster_id: str, rights: SubjectRights = ALL_RIGHTS) -> list[Operation]:
    """All operations of the registry, for a caller with these rights."""
    routes = Routes("Server")

    @routes.on("GET /", "Check that the registry is up.")
    async def root(_: Call) -> Response:
        return answer({})

    @routes.on("GET /contexts", "List the contexts.", *PAGE)
    async def contexts(call: Call) -> Response:
        seen = await rights.readable(registry.state.subjects())
        return answer(page(call, sorted({DEFAULT_CONTEXT, *map(context_of, seen)})))

    @routes.on("GET /v1/metadata/id", "Show the cluster's id.")
    async def metadata_id(_: Call) -> Response:
        scope = {"path": [], "clusters": {"kafka-cluster": cluster_id, "schema-registry-cluster": "schema-registry"}}
        return answer({"scope": scope, "id": ""})

    @routes.on("GET /v1/metadata/version", "Show the version of the registry.")
    async def metadata_version(_: Call) -> Response:
        return answer({"version": __version__, "commitId": ""})

    def with_analyses(operation: Operation) -> Operation:
        """The operation, called again after analyses by workers that it needs."""
        handler = with_rights(operation, rights).handler
        return replace(operation, handler=lambda call: registry.with_analyses(lambda: handler(call)))

    return [
        *routes,
        *map(with_analyses, subject_operations(registry, rights)),
        *map(with_analyses, version_operations(registry, rights)),
        *map(with_analyses, schema_operations(registry, rights)),
        *map(with_analyses, settings_operations(registry)),
    ]


def registry_application(
    registry: Registry,
    cluster_id: str,
    limits: Limits,
    read_json: ReadJson = read_at_once,
    *,
    rights: SubjectRights = ALL_RIGHTS,
    load: Load | None = None,
    roles: Collection[str] = ALL,
) -> Application:
    """The application of one caller on the registry's port."""
    operations = [
        replace(operation, answer_type=REGISTRY_TYPE) for operation in registry_operations(registry, cluster_id, rights)
    ]
    return Application(
        serving(REGISTRY, operations, roles),
        limits=limits,
        invalid_status=lambda _: 422,
        render_error=registry_error,
        rewrite=_rewrite,
        read_json=read_json,
        load=load,
    )


def public_registry(registry: Registry, cluster_id: str, settings: GatewaySettings) -> Application:
    """The public resources of the registry's port, which need no sign-in."""
    described = document(
        [replace(each, answer_type=REGISTRY_TYPE) for each in registry_operations(registry, cluster_id)],
        title="Penstock schema registry",
        version=__version__,
        description="Confluent's Schema Registry API for Avro, JSON Schema and Protobuf.",
        error_type=REGISTRY_TYPE,
    )

    async def openapi(_: Call) -> Response:
        return json_response(described)

    itself = Operation("GET", "/openapi.json", openapi, "Get the OpenAPI document of this API.", "Server")
    return Application([itself], limits=settings.limits, render_error=registry_error)


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
