"""All that the console's pages call beyond the REST Proxy: public routes like any other."""

from __future__ import annotations

from dataclasses import replace

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.kafka.reader import Readers
from penstock.gateway.kafka.tails import Tails
from penstock.gateway.kafka.wire import BrokerWire
from penstock.gateway.registry.api.application import registry_operations
from penstock.gateway.registry.api.shapes import REGISTRY_TYPE
from penstock.gateway.registry.service import Registry
from penstock.gateway.rest.console.cluster import cluster_operations
from penstock.gateway.rest.console.dead_letters import dead_letter_operations
from penstock.gateway.rest.console.groups import group_operations, reset_operations
from penstock.gateway.rest.console.messages import message_operations
from penstock.gateway.rest.console.moves import move_operations, transaction_operations
from penstock.gateway.rest.console.picture import Pictures
from penstock.gateway.rest.console.pipelines import pipeline_operations
from penstock.gateway.rest.console.throughput import Throughput
from penstock.gateway.rest.console.topics import topic_operations
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.web.operations import Operation

REGISTRY_PREFIX = "/registry"


def console_operations(
    admin: Admin,
    groups: Groups,
    readers: Readers,
    tails: Tails,
    publisher: Publisher,
    registry: Registry,
    cluster_id: str,
    wire: BrokerWire,
    codec: SchemaCodec,
) -> list[Operation]:
    """Operations under `/api/v1`, and the registry's own under `/registry`, where a browser may call them too.

    Whoever made the wire stops it.
    """
    pictures = Pictures(admin, wire)
    return [
        *cluster_operations(cluster_id, pictures, Throughput(pictures, wire), wire),
        *topic_operations(pictures, groups, wire),
        *message_operations(admin, readers, groups, tails, codec),
        *group_operations(admin, groups),
        *reset_operations(admin, groups),
        *move_operations(wire),
        *transaction_operations(pictures, wire),
        *dead_letter_operations(admin, groups, pictures, readers, publisher),
        *pipeline_operations(readers),
        *(
            replace(
                operation,
                path=f"{REGISTRY_PREFIX}{operation.path}".rstrip("/"),
                tag=f"Registry: {operation.tag}",
                answer_type=REGISTRY_TYPE,
            )
            for operation in registry_operations(registry, cluster_id)
        ),
    ]
