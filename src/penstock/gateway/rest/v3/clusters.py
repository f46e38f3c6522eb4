"""REST Proxy v3: the cluster and its brokers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.kafka.admin import Admin, ask
from penstock.gateway.rest.v3.shapes import ANY_OBJECT, LIST_SHAPE, V3
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: cluster"


def v3_cluster_operations(admin: Admin, v3: V3) -> list[Operation]:
    """Operations on the cluster and its brokers."""
    routes = v3.routes(TAG)

    def show_cluster(call: Call, cluster: Any) -> dict[str, Any]:
        controller = cluster.controller.id if cluster.controller is not None else None
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

    def show_broker(call: Call, node: Any) -> dict[str, Any]:
        return v3.resource(
            call,
            "KafkaBroker",
            ("brokers", node.id),
            broker_id=node.id,
            host=node.host,
            port=node.port,
            rack=node.rack,
            configs=v3.related(call, "brokers", node.id, "configs"),
            partition_replicas=v3.related(call, "brokers", node.id, "partition-replicas"),
        )

    async def clusters(call: Call) -> Response:
        cluster = show_cluster(call, await ask(admin.client.describe_cluster))
        base = str(call.request.base_url).rstrip("/")
        metadata = {"self": f"{base}/v3/clusters", "next": None}
        return json_response({"kind": "KafkaClusterList", "metadata": metadata, "data": [cluster]})

    @routes.on("GET", "Show the cluster.", answers={200: ANY_OBJECT})
    async def cluster(call: Call) -> Response:
        return json_response(show_cluster(call, await ask(admin.client.describe_cluster)))

    @routes.on("GET /brokers", "List brokers.", answers={200: LIST_SHAPE})
    async def brokers(call: Call) -> Response:
        nodes = sorted((await ask(admin.client.describe_cluster)).nodes, key=lambda node: int(node.id))
        return v3.listed(call, "KafkaBrokerList", ("brokers",), [show_broker(call, node) for node in nodes])

    @routes.on("GET /brokers/{broker_id}", "Show a broker.")
    async def broker(call: Call) -> Response:
        for node in (await ask(admin.client.describe_cluster)).nodes:
            if node.id == call["broker_id"]:
                return json_response(show_broker(call, node))
        raise Problem(40404, f"no broker {call['broker_id']}", "list the brokers to see their ids")

    @routes.on("GET /brokers/{broker_id}/partition-replicas", "List the replicas on a broker.")
    async def replicas(call: Call) -> Response:
        wanted, found = call["broker_id"], []
        for name, topic in (await admin.describe_all(await admin.names())).items():
            for partition in topic.partitions:
                found += [
                    show_replica(v3, call, name, partition, node) for node in partition.replicas if node.id == wanted
                ]
        return v3.listed(call, "KafkaReplicaList", ("brokers", wanted, "partition-replicas"), found)

    return [Operation("GET", "/v3/clusters", clusters, "List the clusters.", TAG, answers={200: LIST_SHAPE}), *routes]


def show_replica(v3: V3, call: Call, topic: str, partition: Any, node: Any) -> dict[str, Any]:
    """A replica of a partition on a broker."""
    leader = partition.leader.id if partition.leader is not None else -1
    return v3.resource(
        call,
        "KafkaReplica",
        ("topics", topic, "partitions", partition.id, "replicas", node.id),
        topic_name=topic,
        partition_id=partition.id,
        broker_id=node.id,
        is_leader=node.id == leader,
        is_in_sync=any(each.id == node.id for each in partition.isr),
        broker=v3.related(call, "brokers", node.id),
    )
