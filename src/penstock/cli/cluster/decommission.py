"""`penstock cluster decommission`: move all replicas off a broker, wait until it is stopped, and unregister it.

Every step checks the cluster's state first, so that the command may be interrupted and run again at any point.
"""

from __future__ import annotations

import time

import click

from penstock.cli.cluster.moves import carry_out, show_plan, throttle_option
from penstock.cli.cluster.plan import CannotPlace, Plan, drain
from penstock.cli.cluster.quorum import read_quorum
from penstock.cli.cluster.reassignment_watch import watch
from penstock.cli.cluster.view import ClusterView, patiently, read_view
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options
from penstock.cli.render import plural
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient, check_error
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

POLL_S = 0.5


@click.command(cls=StyledCommand)
@click.argument("broker", type=click.IntRange(0))
@throttle_option
@click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing.")
@click.option(
    "--timeout", "timeout_s", type=float, default=3600, show_default=True, help="Seconds to wait for its stop."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def command(
    connection: Connection, broker: int, throttle: int | None, dry_run: bool, timeout_s: float, yes: bool
) -> None:
    """Move all replicas off a broker, and unregister it.

    Its replicas move to the other brokers. Then stop the broker; the cluster unregisters it. If the command was
    interrupted, run it again: it continues from the cluster's state.
    """
    with WireClient(connection) as client:
        view = read_view(client)
        _require_registered(view, broker)
        plan = plan_drain(view, broker)
        if plan or dry_run:
            show_plan(client, view, plan)
        if dry_run:
            return
        _warn_of_controller(client, broker)
        confirm(f"Remove broker {broker} from the cluster?", yes)
        _empty(client, broker, throttle)
        _wait_for_stop(client, broker, timeout_s)
        response: UnregisterBrokerResponse = client.ask(UnregisterBrokerRequest(broker))
        check_error(response.error_code, response.error_message, f"broker {broker} could not be unregistered")
    click.echo(f"broker {broker} is removed from the cluster; its data directories may be deleted")


def _require_registered(view: ClusterView, broker: int) -> None:
    if broker in view.brokers:
        return
    raise CommandFailure(
        f"there is no broker {broker}",
        f"the cluster has {', '.join(map(str, view.brokers))}; a removed one is not listed",
        "`penstock cluster info` shows the brokers",
    )


def plan_drain(view: ClusterView, broker: int) -> Plan:
    """Where a broker's replicas go. Raises CommandFailure if there are not enough brokers for them."""
    try:
        return drain(view.assignment(), view.alive(), broker)
    except CannotPlace as error:
        shown = ", ".join(map(str, error.partitions[:3]))
        raise CommandFailure(
            f"broker {broker} cannot be emptied: its replicas have nowhere to go; nothing was changed",
            f"{plural(len(error.partitions), 'partition')} such as {shown} need {error.needed} brokers, and "
            f"{error.available} would be left",
            "add a broker first (`penstock cluster add`), or give these topics fewer replicas with "
            "`penstock cluster reassign`",
        ) from None


def _warn_of_controller(client: WireClient, broker: int) -> None:
    if any(node.node_id == broker for node in read_quorum(client).voters):
        click.echo(
            f"note: node {broker} is also a controller. It stays a voter; when it is stopped the quorum counts it as "
            f"lost. Remove it with `penstock cluster remove-controller {broker}`, or, where controller.quorum.voters "
            "names it, replace it there first.",
            err=True,
        )


def _empty(client: WireClient, broker: int, throttle: int | None) -> None:
    """Move replicas until the broker has none: topics that are created meanwhile may still be assigned to it."""
    while True:
        view = patiently(lambda: read_view(client))
        plan = plan_drain(view, broker)
        if plan:
            progress = carry_out(client, view, plan, throttle, quiet=False)
            click.echo(progress.sentence())
        elif any(broker in partition.replicas for partition in view.partitions.values()):
            # An earlier run has already requested the rest.
            watch(client)
        else:
            return


def _wait_for_stop(client: WireClient, broker: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    told = False
    while True:
        view = patiently(lambda: read_view(client))
        if broker not in view.brokers or view.brokers[broker].fenced:
            return
        if any(broker in partition.replicas for partition in view.partitions.values()):
            _empty(client, broker, None)
            continue
        if not told:
            click.echo(f"broker {broker} has no replicas left: stop it now. Waiting until it is down …")
            told = True
        if time.monotonic() > deadline:
            raise CommandFailure(
                f"broker {broker} is still running",
                f"it was not stopped within {timeout_s:g} seconds; it is empty, but still registered",
                f"stop it and run `penstock cluster decommission {broker}` again",
            )
        time.sleep(POLL_S)
