"""`penstock cluster info`: the cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.options import Connection, connection_options, output_option
from penstock.cli.render import print_facts, print_json, print_table
from penstock.cli.style import StyledCommand

if TYPE_CHECKING:
    from penstock.cli.cluster.view import BrokerView


@click.command(cls=StyledCommand)
@connection_options
@output_option
def command(connection: Connection, as_json: bool) -> None:
    """Show the cluster's id, controller, brokers, versions, and how many topics and partitions it has."""
    from penstock.cli.admin import Admin, Broker
    from penstock.cli.broker_probe import NoAnswer, api_versions, is_plain

    admin = Admin(connection)
    cluster_id, controller, brokers = admin.brokers()
    down = [Broker(one.node_id, one.host, one.port, one.rack) for one in _fenced(connection)]
    topics = admin.topics()
    partitions = [partition for topic in topics for partition in topic.partitions]
    short = [p for p in partitions if len(p.in_sync_replicas) < len(p.replicas)]
    rows = []
    features: dict[str, int] = {}
    for broker in sorted((*brokers, *down), key=lambda broker: broker.node_id):
        led = sum(1 for partition in partitions if partition.leader == broker.node_id)
        apis: int | None = None
        if is_plain(connection) and broker not in down:
            try:
                versions = api_versions(broker.host, broker.port)
                apis = len(versions.api_keys)
                features |= {feature.name: feature.max_version_level for feature in versions.finalized_features}
            except NoAnswer:
                apis = None
        rows.append((broker.node_id, broker.host, broker.port, broker.rack, led, apis, broker in down))
    names = ("node_id", "host", "port", "rack", "partitions_led", "apis", "fenced")
    described = {
        "cluster_id": cluster_id,
        "controller": controller,
        "brokers": [dict(zip(names, row, strict=True)) for row in rows],
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


def _fenced(connection: Connection) -> list[BrokerView]:
    """The brokers that are registered and not up, which librdkafka does not show; none where they cannot be asked."""
    from penstock.cli.cluster.view import read_brokers
    from penstock.cli.wire_client import WireClient, is_plain

    if not is_plain(connection):
        return []
    with WireClient(connection) as client:
        return [broker for broker in read_brokers(client)[2].values() if broker.fenced]
