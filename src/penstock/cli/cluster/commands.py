"""`penstock cluster …`: the cluster as a whole, its controllers, and where its replicas are."""

from __future__ import annotations

import click

from penstock.cli.lazy import LazyGroup

COMMANDS = {
    "info": ("penstock.cli.cluster.info", "Show the cluster's id, controller, brokers and versions."),
    "quorum": ("penstock.cli.cluster.quorum", "Show the controllers, who leads them, and how far each is behind."),
    "leaders": ("penstock.cli.cluster.leaders", "Show who leads what, and give leadership back to preferred leaders."),
    "rebalance": ("penstock.cli.cluster.rebalance", "Spread replicas and leaders evenly over the brokers."),
    "reassign": ("penstock.cli.cluster.reassign", "Move replicas by a plan in Kafka's JSON, or watch what is moving."),
    "add": ("penstock.cli.cluster.add", "Add a broker: what to write, and wait until it is there."),
    "decommission": ("penstock.cli.cluster.decommission", "Empty a broker, wait until it is, and forget it."),
    "add-controller": ("penstock.cli.cluster.add_controller", "Make a node a voter of the controllers' quorum."),
    "remove-controller": ("penstock.cli.cluster.remove_controller", "Take a voter out of the controllers' quorum."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Look at the cluster as a whole, and change who is in it and where its replicas are."""
