"""The roles of a gateway: which operations one process serves, so that several processes can share the work."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from starlette.responses import Response

from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

INGRESS, EGRESS, REGISTRY, CONSOLE = "ingress", "egress", "registry", "console"
ALL = (INGRESS, EGRESS, REGISTRY, CONSOLE)
# The roles whose clients need metadata of topics and partitions.
METADATA_ROLES = (INGRESS, EGRESS, CONSOLE)

Services = TypeVar("Services")


def serving(
    wanted: str | Collection[str], operations: Iterable[Operation[Services]], roles: Collection[str]
) -> list[Operation[Services]]:
    """The operations of some roles; on a gateway that has none of these they return 404 and name the roles."""
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if any(name in roles for name in names):
        return list(operations)

    async def elsewhere(_services: Services, _call: Call) -> Response:
        raise not_served(names, roles)

    return [replace(operation, handler=elsewhere, parameters=(), body=None) for operation in operations]


def not_served(wanted: Collection[str], roles: Collection[str]) -> Problem:
    """404: only gateways with other roles serve this."""
    offered = " or ".join(f"--role {name}" for name in wanted)
    return Problem(
        40410,
        f"this gateway has the role {', '.join(roles)} and does not serve this",
        f"call one that was started with {offered}",
    )
