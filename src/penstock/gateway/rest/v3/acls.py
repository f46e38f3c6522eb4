"""REST Proxy v3: ACLs. Without an authorizer in the cluster, every operation fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.responses import Response

from penstock.client.operations.access import Entry, EntryFilter, add_entries, list_entries, remove_entries
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, v3_routes
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, json_object
from penstock.gateway.web.parameters import query
from penstock.gateway.web.problem import Problem
from penstock.model.access import Operation as AccessOperation
from penstock.model.access import PatternType, Permission, ResourceType

TAG = "REST Proxy v3: access lists"
NOT_SERVED_CODE = 40010
RESOURCE_TYPES = ("ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
PATTERN_TYPES = ("ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = tuple(
    each.name for each in AccessOperation if AccessOperation.ANY <= each <= AccessOperation.IDEMPOTENT_WRITE
)
PERMISSIONS = ("ANY", "DENY", "ALLOW")
FILTER = (
    query("resource_type", "The type of the resource.", enum=list(RESOURCE_TYPES), default="ANY"),
    query("resource_name", "The resource's name.", maxLength=249),
    query("pattern_type", "How the resource's name is matched.", enum=list(PATTERN_TYPES), default="ANY"),
    query("principal", "The principal, such as User:alice.", maxLength=1000),
    query("host", "The host.", maxLength=255),
    query("operation", "The operation.", enum=list(OPERATIONS), default="ANY"),
    query("permission", "ALLOW or DENY.", enum=list(PERMISSIONS), default="ANY"),
)
ACL_BODY = json_object(
    [each.name for each in FILTER],
    resource_type={"enum": [name for name in RESOURCE_TYPES if name != "ANY"]},
    resource_name={"type": "string", "minLength": 1, "maxLength": 249},
    pattern_type={"enum": ["LITERAL", "PREFIXED"]},
    principal={"type": "string", "pattern": r"^[^:]+:.+$", "maxLength": 1000},
    host={"type": "string", "minLength": 1, "maxLength": 255},
    operation={"enum": [name for name in OPERATIONS if name != "ANY"]},
    permission={"enum": ["ALLOW", "DENY"]},
)
BATCH_BODY = json_object(["data"], data={"type": "array", "minItems": 1, "maxItems": 1000, "items": ACL_BODY})


routes: Routes[RestServices] = v3_routes(TAG, "/acls")


def show(services: RestServices, call: Call, entry: Entry) -> dict[str, object]:
    return services.v3.resource(
        call,
        "KafkaAcl",
        ("acls",),
        resource_type=ResourceType(entry.resource_type).name,
        resource_name=entry.resource_name,
        pattern_type=PatternType(entry.pattern_type).name,
        principal=entry.principal,
        host=entry.host,
        operation=AccessOperation(entry.operation).name,
        permission=Permission(entry.permission).name,
    )


@routes.on("GET", "List ACLs.", *FILTER, answers={200: LIST_SHAPE})
async def listing(services: RestServices, call: Call) -> Response:
    with access_lists():
        found = await services.admin.brokers.run(list_entries, wanted(call))
    return services.v3.listed(call, "KafkaAclList", ("acls",), [show(services, call, entry) for entry in found])


@routes.on("POST", "Create an ACL.", body=Body(ACL_BODY), answers={201: None})
async def create(services: RestServices, call: Call) -> Response:
    await add(services, [call.body])
    return Response(status_code=201)


@routes.on("POST :batch", "Create several ACLs.", body=Body(BATCH_BODY), answers={201: None})
async def batch(services: RestServices, call: Call) -> Response:
    await add(services, call.body["data"])
    return Response(status_code=201)


async def add(services: RestServices, bodies: list[dict[str, Any]]) -> None:
    entries = dict.fromkeys(Entry(*_fields(body)) for body in bodies)
    with access_lists():
        await services.admin.brokers.run(add_entries, list(entries))


@routes.on("DELETE", "Delete ACLs.", *FILTER, answers={200: json_object(["data"])})
async def delete(services: RestServices, call: Call) -> Response:
    with access_lists():
        removed = await services.admin.brokers.run(remove_entries, [wanted(call)])
    return json_response({"data": [show(services, call, entry) for entry in removed]})


def wanted(call: Call) -> EntryFilter:
    return EntryFilter(*_fields({each.name: call[each.name] for each in FILTER}))


def _fields(named: dict[str, Any]) -> tuple[Any, ...]:
    """The fields of an Entry or an EntryFilter."""
    return (
        ResourceType[named["resource_type"]],
        named["resource_name"],
        PatternType[named["pattern_type"]],
        named["principal"],
        named["host"],
        AccessOperation[named["operation"]],
        Permission[named["permission"]],
    )


@contextmanager
def access_lists() -> Iterator[None]:
    """Explains the error of every call about ACLs in a cluster without an authorizer."""
    try:
        yield
    except Problem as problem:
        if problem.code != NOT_SERVED_CODE:
            raise
        raise Problem(
            NOT_SERVED_CODE,
            f"ACLs are disabled in this cluster: {problem.message}",
            "configure an authorizer on the brokers (authorizer.class.name)",
        ) from None
