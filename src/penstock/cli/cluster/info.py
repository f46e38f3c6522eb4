"""`penstock cluster info`: the cluster as a whole."""

from __future__ import annotations

import contextlib

import click

from penstock.cli.client import open_client
from penstock.cli.options import Connection, query_options
from penstock.cli.render import documents, print_facts, print_json, print_table
from penstock.cli.style import StyledCommand


@click.command(cls=StyledCommand)
@query_options
def command(connection: Connection, as_json: bool) -> None:
    """Show the cluster's id, controller, brokers, versions, and how many topics and partitions it has."""
    from penstock.cli.cluster.view import read_brokers
    from penstock.cli.topic_queries import list_topics
    from penstock.client.failures import NoAnswer
    from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    served: dict[int, ApiVersionsResponse] = {}
    with open_client(connection) as client:
        topics = list_topics(client)
        cluster_id, controller, brokers = read_brokers(client)
        for broker in brokers.values():
            if not broker.fenced:
                with contextlib.suppress(NoAnswer):
                    served[broker.node_id] = client.ask_at(broker.address, ApiVersionsRequest("penstock-cli", "1"))
    partitions = [partition for topic in topics for partition in topic.partitions]
    short = [p for p in partitions if len(p.in_sync_replicas) < len(p.replicas)]
    rows = []
    features: dict[str, int] = {}
    for broker in brokers.values():
        led = sum(1 for partition in partitions if partition.leader == broker.node_id)
        versions = served.get(broker.node_id)
        apis = len(versions.api_keys) if versions is not None else None
        features |= {each.name: each.max_version_level for each in versions.finalized_features} if versions else {}
        rows.append((broker.node_id, broker.host, broker.port, broker.rack, led, apis, broker.fenced))
    names = ("node_id", "host", "port", "rack", "partitions_led", "apis", "fenced")
    described = {
        "cluster_id": cluster_id,
        "controller": controller if controller >= 0 else None,
        "brokers": documents(names, rows),
        "topics": len(topics),
        "internal_topics": sum(topic.is_hidden for topic in topics),
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
            ("controller", controller if controller >= 0 else "none"),
            ("topics", f"{len(topics)}" + (f" ({internal} internal)" if internal else "")),
            ("partitions", len(partitions)),
            ("under-replicated", len(short)),
            ("without a leader", described["offline_partitions"]),
            ("features", ", ".join(f"{name}={level}" for name, level in sorted(features.items())) or "none"),
        ]
    )
    shown = [(*row[:-1], "down" if row[-1] else "up") for row in rows]
    print_table(("broker", "host", "port", "rack", "leads", "apis", "state"), shown)
