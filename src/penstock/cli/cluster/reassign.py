"""`penstock cluster reassign`: reassign replicas by a plan, watch reassignments, or cancel them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.cli.cluster.moves import carry_out, settle, show_plan, throttle_option
from penstock.cli.cluster.plan import Plan
from penstock.cli.cluster.reassignment_file import check_plan, format_plan, parse_plan
from penstock.cli.cluster.reassignment_requests import (
    alter_reassignments,
    clear_throttle,
    refuse,
    set_throttle,
    throttled_topics,
)
from penstock.cli.cluster.reassignment_watch import watch
from penstock.cli.cluster.view import ClusterView, read_view
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, query_options
from penstock.cli.render import plural, print_json
from penstock.cli.style import StyledCommand
from penstock.cli.wire_client import WireClient


@click.command(cls=StyledCommand)
@click.argument("plan_file", metavar="[PLAN.json]", required=False)
@throttle_option
@click.option("--cancel", is_flag=True, help="Cancel ongoing reassignments: those of the plan, or all.")
@click.option("--no-wait", is_flag=True, help="Return once the cluster has accepted the plan.")
@click.option("--save-current", type=click.Path(dir_okay=False), metavar="FILE", help="Save the current assignment.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@query_options
def command(
    connection: Connection,
    as_json: bool,
    plan_file: str | None,
    throttle: int | None,
    cancel: bool,
    no_wait: bool,
    save_current: str | None,
    yes: bool,
) -> None:
    """Reassign replicas by a plan in Kafka's JSON, or watch reassignments.

    The plan is what kafka-reassign-partitions.sh takes; `-` reads it from standard input. The cluster keeps ongoing
    reassignments, so this command may be stopped and run again: without a plan it watches until they are done, and with
    --throttle it changes their speed.
    """
    if cancel and throttle is not None:
        raise click.UsageError("Use either --cancel or --throttle.")
    plan = read_plan(plan_file) if plan_file is not None else None
    with WireClient(connection) as client:
        view = read_view(client)
        if plan is not None:
            check_plan(plan, view)
        if save_current is not None:
            _save(save_current, view, plan)
        if cancel:
            _cancel(client, view, plan, as_json, yes)
        elif plan is None:
            _follow(client, view, throttle, as_json, no_wait)
        else:
            _move(client, view, plan, throttle, as_json, no_wait, yes)


def read_plan(plan_file: str) -> Plan:
    """The plan in a file, or on standard input for `-`."""
    try:
        text = sys.stdin.read() if plan_file == "-" else Path(plan_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailure(f"cannot read {plan_file}", str(error)) from None
    return parse_plan(text, "standard input" if plan_file == "-" else plan_file)


def _save(path: str, view: ClusterView, plan: Plan | None) -> None:
    chosen = plan if plan is not None else view.ongoing
    current = {name: view.partitions[name].replicas for name in chosen if name in view.partitions}
    try:
        Path(path).write_text(format_plan(current) + "\n", "utf-8")
    except OSError as error:
        raise CommandFailure(f"cannot write {path}; nothing was changed", str(error)) from None


def _move(
    client: WireClient, view: ClusterView, plan: Plan, throttle: int | None, as_json: bool, no_wait: bool, yes: bool
) -> None:
    present = view.assignment()
    changed = {name: replicas for name, replicas in plan.items() if present[name] != replicas}
    if not changed and not any(name in view.ongoing for name in plan):
        click.echo("{}" if as_json else "every replica of the plan is where it should be")
        return
    if changed and not as_json:
        show_plan(client, view, changed)
    if changed:
        confirm("Move them?", yes)
    if no_wait:
        if throttle is not None:
            set_throttle(client, throttle, view, changed)
        refuse(alter_reassignments(client, changed), "some partitions could not be moved")
        click.echo("{}" if as_json else "started: `penstock cluster reassign` shows the progress")
        return
    progress = carry_out(client, view, changed, throttle, quiet=as_json)
    if as_json:
        print_json({"partitions": len(changed), "bytes": progress.total_bytes})
    else:
        click.echo(f"done: {progress.sentence()}")


def _follow(client: WireClient, view: ClusterView, throttle: int | None, as_json: bool, no_wait: bool) -> None:
    rows = [
        {
            **name._asdict(),
            "replicas": list(moving.replicas),
            "adding": list(moving.adding),
            "removing": list(moving.removing),
        }
        for name, moving in view.ongoing.items()
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("nothing is being moved")
        _lift_forgotten_throttle(client, view)
        return
    if throttle is not None:
        set_throttle(client, throttle, view, {name: moving.target for name, moving in view.ongoing.items()})
    for row in rows[:20]:
        click.echo(f"{row['topic']}-{row['partition']}: {row['replicas']} + {row['adding']} - {row['removing']}")
    if len(rows) > 20:
        click.echo(f"… and {plural(len(rows) - 20, 'more partition')}")
    if not no_wait:
        progress = watch(client)
        settle(client, {name.topic for name in view.ongoing}, throttled=True)
        click.echo(f"done: {progress.sentence()}")


def _lift_forgotten_throttle(client: WireClient, view: ClusterView) -> None:
    """The command that started the last reassignment may have been stopped before its end."""
    topics = throttled_topics(client, view)
    if topics is not None:
        clear_throttle(client, view, topics)
        click.echo("removed a throttle left over from an earlier reassignment")


def _cancel(client: WireClient, view: ClusterView, plan: Plan | None, as_json: bool, yes: bool) -> None:
    chosen = [name for name in view.ongoing if plan is None or name in plan]
    if not chosen:
        click.echo("[]" if as_json else "nothing is being moved")
        return
    confirm(f"Cancel the reassignment of {plural(len(chosen), 'partition')}?", yes)
    refuse(alter_reassignments(client, dict.fromkeys(chosen)), "some reassignments could not be cancelled")
    settle(client, {name.topic for name in chosen}, throttled=True)
    if as_json:
        print_json([name._asdict() for name in chosen])
    else:
        click.echo(f"cancelled: {plural(len(chosen), 'partition')}")
