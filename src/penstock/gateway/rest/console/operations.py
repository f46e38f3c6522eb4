"""All operations that the console calls beyond the REST Proxy's."""

from __future__ import annotations

from dataclasses import replace

from penstock.gateway.registry.api.application import registry_operations
from penstock.gateway.registry.api.shapes import REGISTRY_TYPE
from penstock.gateway.rest.console.audit import audit_operations
from penstock.gateway.rest.console.clients import client_operations
from penstock.gateway.rest.console.cluster import cluster_operations
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshots
from penstock.gateway.rest.console.dead_letters import dead_letter_operations
from penstock.gateway.rest.console.groups import group_operations, reset_operations
from penstock.gateway.rest.console.hot_keys import hot_key_operations
from penstock.gateway.rest.console.messages import message_operations
from penstock.gateway.rest.console.moves import move_operations, transaction_operations
from penstock.gateway.rest.console.pipelines import pipeline_operations
from penstock.gateway.rest.console.tenants import tenant_operations
from penstock.gateway.rest.console.throughput import Throughput
from penstock.gateway.rest.console.topics import topic_operations
from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.operations import Operation

REGISTRY_PREFIX = "/registry"


def console_operations(services: RestServices) -> list[Operation]:
    """Operations under `/api/v1`, and the registry's under `/registry`, so that the console can call them."""
    admin, groups, readers, wire = services.admin, services.groups, services.readers, services.wire
    snapshots = ClusterSnapshots(admin, wire)
    return [
        *cluster_operations(services.cluster_id, snapshots, Throughput(snapshots, wire), wire),
        *topic_operations(snapshots, groups, wire),
        *hot_key_operations(snapshots, wire),
        *message_operations(admin, readers, groups, services.tails, services.console_codec),
        *group_operations(admin, groups),
        *reset_operations(admin, groups),
        *move_operations(wire),
        *transaction_operations(snapshots, wire),
        *tenant_operations(snapshots, wire),
        *client_operations(snapshots, wire),
        *dead_letter_operations(admin, groups, snapshots, readers, services.publisher),
        *pipeline_operations(readers),
        *audit_operations(readers),
        *(
            replace(
                operation,
                path=f"{REGISTRY_PREFIX}{operation.path}".rstrip("/"),
                tag=f"Registry: {operation.tag}",
                answer_type=REGISTRY_TYPE,
            )
            for operation in registry_operations(services.registry, services.cluster_id, services.rights)
        ),
    ]
