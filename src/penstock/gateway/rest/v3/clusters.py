"""REST Proxy v3: the cluster and its brokers."""

from __future__ import annotations

from starlette.responses import Response

from penstock.client.operations.topics import ClusterBrokers, Partition, describe_cluster, list_topics
from penstock.client.view import BrokerView
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.resources import V3
from penstock.gateway.rest.v3.shapes import ANY_OBJECT, LIST_SHAPE, v3_routes
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes
from penstock.gateway.web.problem import Problem

TAG = "REST Proxy v3: cluster"


routes: Routes[RestServices] = v3_routes(TAG)


def show_cluster(services: RestServices, call: Call, cluster: ClusterBrokers) -> dict[str, object]:
    controller = cluster.controller
    return services.v3.resource(
        call,
        "KafkaCluster",
        (),
        controller=services.v3.related(call, "brokers", controller) if controller is not None else None,
        acls=services.v3.related(call, "acls"),
        brokers=services.v3.related(call, "brokers"),
        broker_configs=services.v3.related(call, "broker-configs"),
        consumer_groups=services.v3.related(call, "consumer-groups"),
        topics=services.v3.related(call, "topics"),
        partition_reassignments=services.v3.related(call, "topics", "-", "partitions", "-", "reassignment"),
    )


def show_broker(services: RestServices, call: Call, broker: BrokerView) -> dict[str, object]:
    return services.v3.resource(
        call,
        "KafkaBroker",
        ("brokers", broker.node_id),
        broker_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        configs=services.v3.related(call, "brokers", broker.node_id, "configs"),
        partition_replicas=services.v3.related(call, "brokers", broker.node_id, "partition-replicas"),
    )


clusters_routes: Routes[RestServices] = Routes(TAG, "/v3/clusters")


@clusters_routes.on("GET", "List the clusters.", answers={200: LIST_SHAPE})
async def clusters(services: RestServices, call: Call) -> Response:
    cluster = show_cluster(services, call, await services.admin.brokers.run(describe_cluster))
    base = str(call.request.base_url).rstrip("/")
    metadata = {"self": f"{base}/v3/clusters", "next": None}
    return json_response({"kind": "KafkaClusterList", "metadata": metadata, "data": [cluster]})


@routes.on("GET", "Show the cluster.", answers={200: ANY_OBJECT})
async def cluster(services: RestServices, call: Call) -> Response:
    return json_response(show_cluster(services, call, await services.admin.brokers.run(describe_cluster)))


@routes.on("GET /brokers", "List brokers.", answers={200: LIST_SHAPE})
async def brokers(services: RestServices, call: Call) -> Response:
    cluster = await services.admin.brokers.run(describe_cluster)
    return services.v3.listed(
        call, "KafkaBrokerList", ("brokers",), [show_broker(services, call, each) for each in cluster.brokers]
    )


@routes.on("GET /brokers/{broker_id}", "Show a broker.")
async def broker(services: RestServices, call: Call) -> Response:
    for each in (await services.admin.brokers.run(describe_cluster)).brokers:
        if each.node_id == call["broker_id"]:
            return json_response(show_broker(services, call, each))
    raise Problem(40404, f"no broker {call['broker_id']}", "list the brokers to see their ids")


@routes.on("GET /brokers/{broker_id}/partition-replicas", "List the replicas on a broker.")
async def replicas(services: RestServices, call: Call) -> Response:
    wanted = call["broker_id"]
    found = [
        show_replica(services.v3, call, topic.name, partition, wanted)
        for topic in await services.admin.brokers.run(list_topics)
        for partition in topic.partitions
        if wanted in partition.replicas
    ]
    return services.v3.listed(call, "KafkaReplicaList", ("brokers", wanted, "partition-replicas"), found)


def show_replica(v3: V3, call: Call, topic: str, partition: Partition, broker: int) -> dict[str, object]:
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
