"""`penstock cluster …`: the cluster as a whole, its controllers, and where its replicas are."""

from __future__ import annotations

import click

from penstock.cli.lazy import LazyGroup

COMMANDS = {
    "info": ("penstock.cli.cluster.info", "Show the cluster's id, controller, brokers and versions."),
    "quorum": ("penstock.cli.cluster.quorum", "Show the controller quorum: leader, voters, observers and their lag."),
    "leaders": ("penstock.cli.cluster.leaders", "Show partition leaders, and elect preferred leaders."),
    "rebalance": ("penstock.cli.cluster.rebalance", "Spread replicas and leaders evenly over the brokers."),
    "reassign": ("penstock.cli.cluster.reassign", "Reassign replicas by a JSON plan, or watch reassignments."),
    "disks": ("penstock.cli.cluster.disks", "Show the brokers' data directories, and when they will be full."),
    "drain-disk": ("penstock.cli.cluster.drain_disk", "Move all replicas off a data directory of a broker."),
    "add": ("penstock.cli.cluster.add", "Add a broker: print instructions and wait until it has joined."),
    "decommission": ("penstock.cli.cluster.decommission", "Move all replicas off a broker, and unregister it."),
    "add-controller": ("penstock.cli.cluster.add_controller", "Add a voter to the controller quorum."),
    "remove-controller": ("penstock.cli.cluster.remove_controller", "Remove a voter from the controller quorum."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Show the cluster, and change its nodes and where replicas are."""
