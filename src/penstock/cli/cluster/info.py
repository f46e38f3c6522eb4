"""`penstock cluster info`: the cluster as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from penstock.cli.client import open_admin
from penstock.cli.options import Connection, query_options
from penstock.cli.render import documents, print_facts, print_json, print_table
from penstock.cli.style import StyledCommand

if TYPE_CHECKING:
    from penstock.client.view import BrokerView
    from penstock.wire.messages.api_versions import ApiVersionsResponse


@click.command(cls=StyledCommand)
@query_options
def command(connection: Connection, as_json: bool) -> None:
    """Show the cluster's id, controller, brokers, versions, and how many topics and partitions it has."""
    admin = open_admin(connection)
    cluster_id, controller, brokers = admin.brokers()
    down, served = _ask_directly(connection, brokers)
    topics = admin.topics()
    partitions = [partition for topic in topics for partition in topic.partitions]
    short = [p for p in partitions if len(p.in_sync_replicas) < len(p.replicas)]
    rows = []
    features: dict[str, int] = {}
    for broker in sorted((*brokers, *down), key=lambda broker: broker.node_id):
        led = sum(1 for partition in partitions if partition.leader == broker.node_id)
        versions = served.get(broker.node_id)
        apis = len(versions.api_keys) if versions is not None else None
        features |= {each.name: each.max_version_level for each in versions.finalized_features} if versions else {}
        rows.append((broker.node_id, broker.host, broker.port, broker.rack, led, apis, broker.fenced))
    names = ("node_id", "host", "port", "rack", "partitions_led", "apis", "fenced")
    described = {
        "cluster_id": cluster_id,
        "controller": controller,
        "brokers": documents(names, rows),
        "topics": len(topics),
        "internal_topics": sum(topic.internal for topic in topics),
        "partitions": len(partitions),
        "under_replicated_partitions": len(short),
        "offline_partitions": sum(partition.leader < 0 for partition in partitions),
        "features": features,
    }
    if as_json:
        print_json(described)
        return
    internal = described["internal_topics"]
    print_facts(
        [
            ("cluster id", click.style(cluster_id, bold=True)),
            ("controller", controller if controller is not None else "none"),
            ("topics", f"{len(topics)}" + (f" ({internal} internal)" if internal else "")),
            ("partitions", len(partitions)),
            ("under-replicated", len(short)),
            ("without a leader", described["offline_partitions"]),
            ("features", ", ".join(f"{name}={level}" for name, level in sorted(features.items())) or "none"),
        ]
    )
    shown = [(*row[:-1], "down" if row[-1] else "up") for row in rows]
    print_table(("broker", "host", "port", "rack", "leads", "apis", "state"), shown)


def _ask_directly(
    connection: Connection, brokers: Iterable[BrokerView]
) -> tuple[list[BrokerView], dict[int, ApiVersionsResponse]]:
    """The registered brokers that are down, which librdkafka does not list, and the APIs of those that are up."""
    from penstock.cli.cluster.view import read_brokers
    from penstock.cli.wire_client import direct_client
    from penstock.client.failures import NoAnswer
    from penstock.wire.messages.api_versions import ApiVersionsRequest

    served: dict[int, ApiVersionsResponse] = {}
    with direct_client(connection) as client:
        if client is None:
            return [], served
        for broker in brokers:
            with contextlib.suppress(NoAnswer):
                served[broker.node_id] = client.ask_at(broker.address, ApiVersionsRequest("penstock-cli", "1"))
        return [broker for broker in read_brokers(client)[2].values() if broker.fenced], served
