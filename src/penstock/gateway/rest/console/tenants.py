"""`/api/v1/tenants`: tenants with their usage and limits.

GET  /api/v1/tenants
POST /api/v1/tenants                   {"name": "acme", "limits": {"topics": 100, "storage_bytes": 50000000000}}
PUT  /api/v1/tenants/{tenant}/limits   {"topics": 200, "produce_rate": null}
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.responses import Response

from penstock.core.security import tenant_setup
from penstock.core.security.scram import MECHANISMS
from penstock.gateway.kafka.broker_requests import check
from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Body, Call, Routes, closed_object, json_object
from penstock.gateway.web.parameters import Parameter
from penstock.gateway.web.problem import Problem
from penstock.model.tenants import TENANT_LIMITS, TENANT_PARTITIONS, TENANT_STORAGE_BYTES, TENANT_TOPICS
from penstock.wire.messages.describe_tenants import DescribedTenant, DescribeTenantsRequest
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

TAG = "Tenants (v1)"
PASSWORD_BYTES = 24
KEYS = {
    "topics": TENANT_TOPICS,
    "partitions": TENANT_PARTITIONS,
    "storage_bytes": TENANT_STORAGE_BYTES,
    "produce_rate": "producer_byte_rate",
    "consume_rate": "consumer_byte_rate",
}
NAME_SHAPE = {"type": "string", "pattern": "^[a-zA-Z0-9-]{1,64}$"}
LIMITS_SHAPE = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "properties": {
        name: {
            "type": ["integer", "null"],
            "minimum": 0 if key in TENANT_LIMITS else 1,
            "maximum": 2**53,
            "description": "null for any amount; rates are bytes per second of each broker",
        }
        for name, key in KEYS.items()
    },
}
NEW_TENANT = closed_object(["name", "limits"], name=NAME_SHAPE, limits=LIMITS_SHAPE)
EXAMPLE = {"topics": 100, "partitions": 1000, "storage_bytes": 50_000_000_000, "produce_rate": 20_000_000}


routes: Routes[RestServices] = Routes(TAG, "/api/v1/tenants")


async def find(services: RestServices, names: list[str] | None = None) -> list[DescribedTenant]:
    response = await services.wire.ask(DescribeTenantsRequest(names))
    check(response.error_code, response.error_message, "cannot list the tenants")
    return list(response.tenants)


@routes.on("GET", "List tenants with their usage and limits.", answers={200: json_object(["tenants", "brokers"])})
async def listing(services: RestServices, _: Call) -> Response:
    found = await find(services)
    brokers = len((await services.snapshots.latest()).alive())
    return json_response({"tenants": [shown(tenant) for tenant in found], "brokers": brokers})


async def limit(services: RestServices, name: str, limits: Mapping[str, float | None], what: str) -> None:
    values = {KEYS[key]: value for key, value in limits.items()}
    response = await services.wire.ask(tenant_setup.limit(name, values))
    for entry in response.entries:
        check(entry.error_code, entry.error_message, what)


@routes.on(
    "POST",
    "Create a tenant; the response contains its password, which cannot be shown again.",
    body=Body(NEW_TENANT, example={"name": "acme", "limits": EXAMPLE}),
    answers={201: json_object(["name", "prefix", "password"])},
)
async def create(services: RestServices, call: Call) -> Response:
    name, limits = call.body["name"], call.body["limits"]
    require_limit(limits)
    request = DescribeUserScramCredentialsRequest([UserName(name)])
    users = await services.wire.ask(request)
    check(users.error_code, users.error_message, "cannot look up the user")
    if await find(services, [name]) or any(user.credential_infos for user in users.results):
        raise Problem(40901, f"there is a user {name} already", "choose another name")
    given = {key: value for key, value in limits.items() if value is not None}
    await limit(services, name, given, f"tenant {name} cannot be created")
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    try:
        await admit(services, name, password)
    except Problem:
        # The user that was created must not count as a tenant.
        await limit(services, name, dict.fromkeys(given), f"tenant {name} is incomplete")
        raise
    return json_response({"name": name, "prefix": tenant_setup.prefix_of(name), "password": password}, 201)


async def admit(services: RestServices, name: str, password: str) -> None:
    granted = await services.wire.ask(tenant_setup.grant(name))
    for result in granted.results:
        check(result.error_code, result.error_message, f"tenant {name} cannot be given rights")
    salts = [secrets.token_bytes(tenant_setup.SALT_BYTES) for _ in MECHANISMS]
    signed = await services.wire.ask(tenant_setup.sign_in_with(name, password, salts))
    for answer in signed.results:
        check(answer.error_code, answer.error_message, f"tenant {name} cannot be given a password")


@routes.on(
    "PUT /{tenant}/limits",
    "Change limits of a tenant; those that are not named stay, null removes one.",
    Parameter("tenant", "path", "The tenant's name.", NAME_SHAPE, required=True),
    body=Body(LIMITS_SHAPE, example=EXAMPLE),
    answers={200: json_object(["name", "limits"])},
)
async def alter(services: RestServices, call: Call) -> Response:
    name = call["tenant"]
    found = await find(services, [name])
    if not found:
        raise Problem(40401, f"no tenant {name}", "GET /api/v1/tenants lists the tenants")
    before = {row.key: row.value for row in found[0].limits}
    require_limit({**{key: before.get(known) for key, known in KEYS.items()}, **call.body})
    await limit(services, name, call.body, f"tenant {name} cannot be changed")
    return json_response({"name": name, "limits": call.body})


def require_limit(limits: Mapping[str, float | None]) -> None:
    """Raises Problem if nothing is left that makes a tenant of a user."""
    if all(limits.get(name) is None for name, key in KEYS.items() if key in TENANT_LIMITS):
        raise Problem(40002, "a tenant needs a limit of topics, partitions or storage", "limit one of them")


def shown(tenant: DescribedTenant) -> dict[str, object]:
    """A tenant in a response."""
    limits = {row.key: row.value for row in tenant.limits}
    row: dict[str, object] = {"name": tenant.name, "prefix": tenant_setup.prefix_of(tenant.name)}
    for name, key in KEYS.items():
        limit = limits.get(key)
        row[name] = {"used": round(getattr(tenant, name)), "limit": None if limit is None else int(limit)}
    return {**row, "refused_batches": tenant.refused_batches}
