"""REST Proxy v3: the cluster and its brokers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.client.operations.topics import ClusterBrokers, Partition, describe_cluster, list_topics
from penstock.client.view import BrokerView
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.rest.v3.shapes import ANY_OBJECT, LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: cluster"


def v3_cluster_operations(admin: Admin, v3: V3) -> list[Operation]:
    """Operations on the cluster and its brokers."""
    routes = v3.routes(TAG)

    def show_cluster(call: Call, cluster: ClusterBrokers) -> dict[str, Any]:
        controller = cluster.controller
        return v3.resource(
            call,
            "KafkaCluster",
            (),
            controller=v3.related(call, "brokers", controller) if controller is not None else None,
            acls=v3.related(call, "acls"),
            brokers=v3.related(call, "brokers"),
            broker_configs=v3.related(call, "broker-configs"),
            consumer_groups=v3.related(call, "consumer-groups"),
            topics=v3.related(call, "topics"),
            partition_reassignments=v3.related(call, "topics", "-", "partitions", "-", "reassignment"),
        )

    def show_broker(call: Call, broker: BrokerView) -> dict[str, Any]:
        return v3.resource(
            call,
            "KafkaBroker",
            ("brokers", broker.node_id),
            broker_id=broker.node_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            configs=v3.related(call, "brokers", broker.node_id, "configs"),
            partition_replicas=v3.related(call, "brokers", broker.node_id, "partition-replicas"),
        )

    async def clusters(call: Call) -> Response:
        cluster = show_cluster(call, await admin.brokers.run(describe_cluster))
        base = str(call.request.base_url).rstrip("/")
        metadata = {"self": f"{base}/v3/clusters", "next": None}
        return json_response({"kind": "KafkaClusterList", "metadata": metadata, "data": [cluster]})

    @routes.on("GET", "Show the cluster.", answers={200: ANY_OBJECT})
    async def cluster(call: Call) -> Response:
        return json_response(show_cluster(call, await admin.brokers.run(describe_cluster)))

    @routes.on("GET /brokers", "List brokers.", answers={200: LIST_SHAPE})
    async def brokers(call: Call) -> Response:
        cluster = await admin.brokers.run(describe_cluster)
        return v3.listed(call, "KafkaBrokerList", ("brokers",), [show_broker(call, each) for each in cluster.brokers])

    @routes.on("GET /brokers/{broker_id}", "Show a broker.")
    async def broker(call: Call) -> Response:
        for each in (await admin.brokers.run(describe_cluster)).brokers:
            if each.node_id == call["broker_id"]:
                return json_response(show_broker(call, each))
        raise Problem(40404, f"no broker {call['broker_id']}", "list the brokers to see their ids")

    @routes.on("GET /brokers/{broker_id}/partition-replicas", "List the replicas on a broker.")
    async def replicas(call: Call) -> Response:
        wanted = call["broker_id"]
        found = [
            show_replica(v3, call, topic.name, partition, wanted)
            for topic in await admin.brokers.run(list_topics)
            for partition in topic.partitions
            if wanted in partition.replicas
        ]
        return v3.listed(call, "KafkaReplicaList", ("brokers", wanted, "partition-replicas"), found)

    return [Operation("GET", "/v3/clusters", clusters, "List the clusters.", TAG, answers={200: LIST_SHAPE}), *routes]


def show_replica(v3: V3, call: Call, topic: str, partition: Partition, broker: int) -> dict[str, Any]:
    """A replica of a partition on a broker."""
    return v3.resource(
        call,
        "KafkaReplica",
        ("topics", topic, "partitions", partition.partition, "replicas", broker),
        topic_name=topic,
        partition_id=partition.partition,
        broker_id=broker,
        is_leader=broker == partition.leader,
        is_in_sync=broker in partition.in_sync_replicas,
        broker=v3.related(call, "brokers", broker),
    )
