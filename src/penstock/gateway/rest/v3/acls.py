"""REST Proxy v3: ACLs. Without an authorizer in the cluster, every operation fails."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from starlette.responses import Response

from penstock.gateway.kafka.admin import REQUEST_TIMEOUT_S, Admin, ask, result_of
from penstock.gateway.kafka.errors import checked_call
from penstock.gateway.rest.v3.shapes import LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Operation, json_object
from penstock.gateway.web.parameters import query
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: access lists"
NOT_SERVED_CODE = 40010
# librdkafka uses an older name for the cluster resource type.
RESOURCE_TYPES = {
    "ANY": ResourceType.ANY,
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "CLUSTER": ResourceType.BROKER,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
}
TYPE_NAMES = {value: name for name, value in RESOURCE_TYPES.items()}
PATTERN_TYPES = ("ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = tuple(each.name for each in AclOperation if each is not AclOperation.UNKNOWN)
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


def v3_acl_operations(admin: Admin, v3: V3) -> list[Operation]:
    """Operations on ACLs."""
    routes = v3.routes(TAG, "/acls")

    def show(call: Call, binding: Any) -> dict[str, Any]:
        return v3.resource(
            call,
            "KafkaAcl",
            ("acls",),
            resource_type=TYPE_NAMES.get(binding.restype, "UNKNOWN"),
            resource_name=binding.name,
            pattern_type=binding.resource_pattern_type.name,
            principal=binding.principal,
            host=binding.host,
            operation=binding.operation.name,
            permission=binding.permission_type.name,
        )

    @routes.on("GET", "List ACLs.", *FILTER, answers={200: LIST_SHAPE})
    async def listing(call: Call) -> Response:
        future = checked_call(admin.client.describe_acls, wanted(call), request_timeout=REQUEST_TIMEOUT_S)
        found = await acl_result(future)
        if not found:
            await check_authorizer()
        return v3.listed(call, "KafkaAclList", ("acls",), [show(call, binding) for binding in found])

    async def check_authorizer() -> None:
        """Distinguish ACLs that are disabled from an empty list: librdkafka drops the error of this one call."""
        cluster = await ask(admin.client.describe_cluster)
        resource = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))
        settings = await ask(admin.client.describe_configs, [resource])
        if "authorizer.class.name" in settings and not settings["authorizer.class.name"].value:
            raise access_lists_are_off("No Authorizer is configured.")

    @routes.on("POST", "Create an ACL.", body=Body(ACL_BODY), answers={201: None})
    async def create(call: Call) -> Response:
        await add([call.body])
        return Response(status_code=201)

    @routes.on("POST :batch", "Create several ACLs.", body=Body(BATCH_BODY), answers={201: None})
    async def batch(call: Call) -> Response:
        await add(call.body["data"])
        return Response(status_code=201)

    async def add(bodies: list[dict[str, Any]]) -> None:
        bindings = [checked_call(AclBinding, *_analyses(body)) for body in bodies]
        futures = checked_call(
            admin.client.create_acls, list(dict.fromkeys(bindings)), request_timeout=REQUEST_TIMEOUT_S
        )
        for future in futures.values():
            await acl_result(future)

    @routes.on("DELETE", "Delete ACLs.", *FILTER, answers={200: json_object(["data"])})
    async def delete(call: Call) -> Response:
        futures = checked_call(admin.client.delete_acls, [wanted(call)], request_timeout=REQUEST_TIMEOUT_S)
        deleted = [binding for future in futures.values() for binding in await acl_result(future)]
        return json_response({"data": [show(call, binding) for binding in deleted]})

    def wanted(call: Call) -> AclBindingFilter:
        return checked_call(AclBindingFilter, *_analyses({each.name: call[each.name] for each in FILTER}))

    return routes


def _analyses(named: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of an AclBinding or AclBindingFilter, in confluent_kafka's order."""
    return (
        RESOURCE_TYPES[named["resource_type"]],
        named["resource_name"],
        ResourcePatternType[named["pattern_type"]],
        named["principal"],
        named["host"],
        AclOperation[named["operation"]],
        AclPermissionType[named["permission"]],
    )


async def acl_result(future: Any) -> Any:
    """The result of a call about ACLs; raises Problem if the cluster has no authorizer."""
    try:
        return await result_of(future)
    except Problem as problem:
        if problem.code != NOT_SERVED_CODE:
            raise
        raise access_lists_are_off(problem.message) from None


def access_lists_are_off(why: str) -> Problem:
    """The Problem for every call about ACLs in a cluster without an authorizer."""
    return Problem(
        NOT_SERVED_CODE,
        f"ACLs are disabled in this cluster: {why}",
        "configure an authorizer on the brokers (authorizer.class.name)",
    )
