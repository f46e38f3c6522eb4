"""All operations that the console calls beyond the REST Proxy's."""

from __future__ import annotations

from dataclasses import replace

from penstock.gateway.registry.api.application import registry_operations
from penstock.gateway.registry.api.shapes import REGISTRY_TYPE
from penstock.gateway.rest.console import (
    audit,
    clients,
    cluster,
    dead_letters,
    groups,
    hot_keys,
    messages,
    moves,
    pipelines,
    tenants,
    topics,
)
from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.operations import Operation

REGISTRY_PREFIX = "/registry"


def console_operations() -> list[Operation[RestServices]]:
    """Operations under `/api/v1`, and the registry's under `/registry`, so that the console can call them."""
    return [
        *cluster.routes,
        *topics.routes,
        *hot_keys.routes,
        *messages.routes,
        *messages.live_routes,
        *groups.routes,
        *groups.reset_routes,
        *moves.routes,
        *moves.transaction_routes,
        *tenants.routes,
        *clients.routes,
        *dead_letters.routes,
        *pipelines.routes,
        *audit.routes,
        *(
            replace(
                operation,
                path=f"{REGISTRY_PREFIX}{operation.path}".rstrip("/"),
                tag=f"Registry: {operation.tag}",
                answer_type=REGISTRY_TYPE,
            )
            for operation in registry_operations()
        ),
    ]
