"""Shared by the commands that move replicas: options, showing a plan, and executing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import click

from penstock.cli.cluster.plan import Plan
from penstock.cli.cluster.reassignment_file import parse_rate
from penstock.cli.cluster.reassignment_requests import (
    PREFERRED,
    alter_reassignments,
    clear_throttle,
    elect_leaders,
    not_preferred,
    refuse,
    set_throttle,
)
from penstock.cli.cluster.reassignment_watch import Progress, watch
from penstock.cli.cluster.view import ClusterView, patiently, read_sizes, read_view
from penstock.cli.render import human_bytes, plural, print_table
from penstock.cli.wire_client import WireClient


def throttle_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add --throttle."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
        try:
            return parse_rate(value) if value is not None else None
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return click.option(
        "--throttle",
        callback=convert,
        metavar="RATE",
        help="The most that moving may use of each broker, in bytes per second: 10MB, 64MiB. Removed at the end.",
    )(function)


def show_plan(client: WireClient, view: ClusterView, plan: Plan) -> None:
    """Print what a plan does to each broker and how much it copies."""
    after = view.assignment() | plan
    before_count = Counter(replica for partition in view.partitions.values() for replica in partition.replicas)
    after_count = Counter(replica for replicas in after.values() for replica in replicas)
    before_leads = Counter(partition.replicas[0] for partition in view.partitions.values() if partition.replicas)
    after_leads = Counter(replicas[0] for replicas in after.values() if replicas)
    rows = [
        (
            broker.node_id,
            broker.rack,
            f"{before_count[broker.node_id]} → {after_count[broker.node_id]}",
            f"{before_leads[broker.node_id]} → {after_leads[broker.node_id]}",
        )
        for broker in view.brokers.values()
    ]
    print_table(("broker", "rack", "replicas", "preferred leader of"), rows)
    moved = copies(view, plan)
    size = human_bytes(copied_bytes(client, view, plan))
    click.echo(f"{plural(len(plan), 'partition')} change, {plural(moved, 'replica')} copied, about {size}")


def copies(view: ClusterView, plan: Plan) -> int:
    """How many replicas are copied to brokers that do not have them."""
    return sum(len(set(replicas) - set(view.partitions[name].replicas)) for name, replicas in plan.items())


def copied_bytes(client: WireClient, view: ClusterView, plan: Plan) -> int:
    """How many bytes a plan copies, by the leaders' current sizes."""
    sizes = read_sizes(client, view.alive(), list(plan))
    return sum(
        sizes.get((name, view.partitions[name].leader), 0) * len(set(replicas) - set(view.partitions[name].replicas))
        for name, replicas in plan.items()
    )


def carry_out(client: WireClient, view: ClusterView, plan: Plan, throttle: int | None, quiet: bool) -> Progress:
    """Execute a plan and return when it is complete. Raises CommandFailure if partitions are refused."""
    if throttle is not None:
        set_throttle(client, throttle, view, plan)
    refused = alter_reassignments(client, plan)
    progress = watch(client, quiet)
    settle(client, {name.topic for name in plan}, throttle is not None)
    refuse(refused, "some partitions could not be moved")
    return progress


def settle(client: WireClient, topics: set[str], throttled: bool) -> None:
    """After a move: remove the throttle, and elect the new preferred leaders."""
    view = patiently(lambda: read_view(client))
    if throttled:
        clear_throttle(client, view, sorted(topics & {name.topic for name in view.partitions}))
    astray = [name for name in not_preferred(view.partitions) if name.topic in topics]
    if astray:
        elect_leaders(client, PREFERRED, astray)
