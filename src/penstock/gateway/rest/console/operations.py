"""All operations that the console calls beyond the REST Proxy's."""

from __future__ import annotations

from dataclasses import replace

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.live_tails import LiveTails
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.kafka.reader import Readers
from penstock.gateway.registry.api.application import registry_operations
from penstock.gateway.registry.api.shapes import REGISTRY_TYPE
from penstock.gateway.registry.rights import SubjectRights
from penstock.gateway.registry.service import Registry
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
from penstock.gateway.rest.console.share_groups import ShareGroups
from penstock.gateway.rest.console.tenants import tenant_operations
from penstock.gateway.rest.console.throughput import Throughput
from penstock.gateway.rest.console.topics import topic_operations
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.web.operations import Operation

REGISTRY_PREFIX = "/registry"


def console_operations(
    admin: Admin,
    groups: Groups,
    readers: Readers,
    tails: LiveTails,
    publisher: Publisher,
    registry: Registry,
    cluster_id: str,
    wire: BrokerWire,
    codec: SchemaCodec,
    rights: SubjectRights,
) -> list[Operation]:
    """Operations under `/api/v1`, and the registry's under `/registry`, so that the console can call them.

    The caller stops `wire`.
    """
    snapshots = ClusterSnapshots(admin, wire)
    return [
        *cluster_operations(cluster_id, snapshots, Throughput(snapshots, wire), wire),
        *topic_operations(snapshots, groups, wire),
        *hot_key_operations(snapshots, wire),
        *message_operations(admin, readers, groups, tails, codec),
        *group_operations(admin, groups, ShareGroups(groups, snapshots, wire)),
        *reset_operations(admin, groups),
        *move_operations(wire),
        *transaction_operations(snapshots, wire),
        *tenant_operations(snapshots, wire),
        *client_operations(snapshots, wire),
        *dead_letter_operations(admin, groups, snapshots, readers, publisher),
        *pipeline_operations(readers),
        *audit_operations(readers),
        *(
            replace(
                operation,
                path=f"{REGISTRY_PREFIX}{operation.path}".rstrip("/"),
                tag=f"Registry: {operation.tag}",
                answer_type=REGISTRY_TYPE,
            )
            for operation in registry_operations(registry, cluster_id, rights)
        ),
    ]
