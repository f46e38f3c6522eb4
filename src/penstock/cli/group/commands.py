"""`penstock group …`: list, describe, seek, offsets, delete."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.client import open_client
from penstock.cli.failures import CommandFailure
from penstock.cli.group.scope import choose, offset_rows, offsets_as_csv, parse_offsets, parse_scopes, parse_target
from penstock.cli.group.view import describe_row, describe_view, list_row, list_view, show, watch_options
from penstock.cli.options import Connection, confirm, connection_options, query_options, shared_options
from penstock.cli.render import documents, plural, print_json, print_table
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.cli.group.seek import Move
    from penstock.cli.wire_client import WireClient
    from penstock.client.operations.groups import Group

MEMBERS_NAMED_MAX = 3
SCOPE_HELP = "Only these partitions: TOPIC, TOPIC:0 or TOPIC:0,2-4; repeatable."


@click.group(cls=StyledGroup)
def command() -> None:
    """List, describe, move and delete consumer groups; list, describe and delete share and streams groups."""


@command.command("list")
@click.argument("pattern", default="*")
@watch_options
@query_options
def list_groups(pattern: str, interval_s: float | None, connection: Connection, as_json: bool) -> None:
    """List groups whose name matches PATTERN (`*`, `?` and `[a-z]` as in a shell), and their lag."""
    import fnmatch

    from penstock.cli.group import queries
    from penstock.cli.group.lag import LagSource

    def take() -> list[dict[str, Any]]:
        listed = [group.group_id for group in queries.list_groups(client)]
        groups = queries.describe_groups(client, [name for name in listed if fnmatch.fnmatchcase(name, pattern)])
        lags = source.measure(groups.values())
        return [list_row(group, lags[name]) for name, group in sorted(groups.items())]

    with open_client(connection) as client:
        source = LagSource(client)
        show(take, list_view, as_json, interval_s)


@command.command()
@click.argument("name", metavar="GROUP")
@watch_options
@query_options
def describe(name: str, interval_s: float | None, connection: Connection, as_json: bool) -> None:
    """Show a group's members and, for each partition, its offsets, lag, status and reader.

    \b
    Status, from the latest commits:
      OK      it keeps up, or its lag does not grow
      WARN    it moves on, and its lag grows all the same
      STALL   it commits the same offset again and again, and there is more
      STOP    it has stopped committing, and there is more
    """
    from penstock.cli.group.lag import LagSource
    from penstock.cli.group.queries import describe_group

    def take() -> dict[str, object]:
        group = describe_group(client, name)
        return describe_row(group, source.measure([group])[name])

    with open_client(connection) as client:
        source = LagSource(client)
        show(take, describe_view, as_json, interval_s)


@command.command()
@click.argument("name", metavar="GROUP")
@click.option("--to", "word", required=True, metavar="WHERE", help="Where to go; see above.")
@click.option("-t", "--topic", "scopes", multiple=True, metavar="TOPIC[:PARTITIONS]", help=SCOPE_HELP)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@query_options
def seek(name: str, word: str, scopes: tuple[str, ...], dry_run: bool, connection: Connection, as_json: bool) -> None:
    """Move a group's committed offsets. Its members must be stopped.

    \b
    Where (--to), in each partition:
      earliest, latest    the first offset; the end
      120                 this offset
      @TIME               a time: @2026-01-31T10:00, @1700000000000, @-1h
      +10, -10            ten on, or back, from the committed offset

    What lies outside of a partition becomes its first offset or its end. Without -t every partition that the group has
    committed in is moved; with -t a topic that is new to the group, and even a new group, gets offsets too.
    """
    import time

    target = parse_target(word, int(time.time() * 1000))
    wanted = parse_scopes(scopes)

    from penstock.cli.group.queries import describe_groups
    from penstock.cli.group.seek import plan_seek

    with open_client(connection) as client:
        _require_idle(describe_groups(client, [name]).get(name), dry_run)
        _apply(client, name, plan_seek(client, name, target, wanted), dry_run, as_json)


@command.command()
@click.argument("name", metavar="GROUP")
@click.option("--import", "source", type=click.File(encoding="utf-8"), help="Set the offsets in a file; - is stdin.")
@click.option("--delete", "scopes", multiple=True, metavar="TOPIC[:PARTITIONS]", help="Delete offsets; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting offsets.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), help="For humans, programs, spreadsheets.")
@connection_options
def offsets(
    name: str,
    source: Any,
    scopes: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    output: str | None,
    connection: Connection,
) -> None:
    """Show or export a group's committed offsets, import them, or delete those of a topic.

    Example: penstock group offsets billing -o json | penstock group offsets billing-copy --import -
    """
    if source is not None and scopes:
        raise click.UsageError("Use either --import or --delete.")
    chosen_output = output or shared_options().output
    changes = source is not None or bool(scopes)
    if changes and chosen_output == "csv":
        raise click.UsageError("csv is for exports only.")
    if dry_run and not changes:
        raise click.UsageError("--dry-run belongs to --import and --delete.")
    parsed = parse_offsets(source.read(), source.name) if source is not None else None
    wanted = parse_scopes(scopes)

    from penstock.cli.group.queries import describe_groups
    from penstock.cli.group.seek import plan_import

    with open_client(connection) as client:
        if parsed is not None:
            _require_idle(describe_groups(client, [name]).get(name), dry_run)
            _apply(client, name, plan_import(client, name, parsed), dry_run, chosen_output == "json")
        elif wanted:
            _forget(client, name, wanted, dry_run, yes, chosen_output == "json")
        else:
            _export(client, name, chosen_output)


def _export(client: WireClient, name: str, output: str) -> None:
    from penstock.cli.group.queries import committed_offsets, describe_group

    describe_group(client, name)
    committed = committed_offsets(client, [name])[name]
    if output == "json":
        print_json(offset_rows(committed))
    elif output == "csv":
        click.echo(offsets_as_csv(committed), nl=False)
    elif committed:
        rows = [(*place, each.offset, each.leader_epoch, each.metadata) for place, each in committed.items()]
        print_table(("topic", "partition", "offset", "epoch", "metadata"), rows)
    else:
        click.echo(f"group {name} has no committed offsets", err=True)


def _forget(
    client: WireClient, name: str, scopes: dict[str, set[int] | None], dry_run: bool, yes: bool, as_json: bool
) -> None:
    from penstock.cli.group.queries import committed_offsets, delete_offsets, describe_group
    from penstock.client.operations.routing import by_topic
    from penstock.model.ids import TopicPartition

    describe_group(client, name)
    committed = committed_offsets(client, [name])[name]
    held = by_topic(committed)
    missing = sorted(set(scopes) - set(held))
    if missing:
        raise CommandFailure(
            f"group {name} has no offsets of {missing[0]}",
            f"it has offsets of {', '.join(held) or 'no topic'}",
            f"`penstock group offsets {name}` shows them",
        )
    chosen = sorted(TopicPartition(*each) for each in choose(scopes, held))
    if not dry_run:
        confirm(f"Delete {plural(len(chosen), 'offset')} of group {name}?", yes)
        delete_offsets(client, name, chosen)
    rows = [(*place, committed[place].offset) for place in chosen]
    if as_json:
        print_json(documents(("topic", "partition", "old_offset"), rows))
    else:
        print_table(("topic", "partition", "would be deleted" if dry_run else "forgotten"), rows)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP…")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@query_options
def delete(names: tuple[str, ...], yes: bool, connection: Connection, as_json: bool) -> None:
    """Delete groups without members, with all their committed offsets or share-partitions."""
    from penstock.cli.group.queries import delete_groups
    from penstock.client.operations.topics import describe_cluster

    chosen = list(dict.fromkeys(names))
    with open_client(connection) as client:
        client.run(describe_cluster)
        confirm(f"Delete {', '.join(chosen)} and all committed offsets?", yes)
        results = delete_groups(client, chosen)
    if as_json:
        print_json([{"group": name, "result": "failed" if failure else "deleted"} for name, failure in results.items()])
    else:
        for name, failure in results.items():
            if failure is None:
                click.echo(f"deleted {click.style(name, bold=True)}")
    failures = [failure for failure in results.values() if failure is not None]
    for failure in failures[:-1]:
        failure.show()
    if failures:
        raise failures[-1]


def _require_idle(group: Group | None, dry_run: bool) -> None:
    """Refuse while a group has members: they would overwrite the offsets, and the coordinator refuses too."""
    if group is None or not group.members:
        return
    named = [f"{member.client_id} on {member.host}" for member in group.members[:MEMBERS_NAMED_MAX]]
    more = len(group.members) - len(named)
    who = ", ".join(named) + (f" and {more} more" if more else "")
    if dry_run:
        click.echo(
            f"group {group.group_id} has {plural(len(group.members), 'member')} ({who}); stop them first", err=True
        )
        return
    raise CommandFailure(
        f"cannot move group {group.group_id} while its members are active",
        f"it has {plural(len(group.members), 'member')}: {who}",
        "stop them, wait until `penstock group list` shows 0 members, and run this again; --dry-run works now",
    )


def _apply(client: WireClient, name: str, moves: list[Move], dry_run: bool, as_json: bool) -> None:
    if not dry_run:
        from penstock.cli.group.queries import commit_offsets
        from penstock.model.ids import TopicPartition

        commit_offsets(client, name, {TopicPartition(move.topic, move.partition): move.place for move in moves})
    if as_json:
        print_json([move.row() for move in moves])
        return
    rows = [
        (move.topic, move.partition, move.old_offset, "→", move.place.offset, move.start_offset, move.end_offset)
        for move in moves
    ]
    print_table(("topic", "partition", "old", "", "new", "first offset", "next offset"), rows)
    outside = sum(move.clamped for move in moves)
    if outside:
        where = "1 partition does" if outside == 1 else f"{outside:,} partitions do"
        click.echo(f"{where} not have the requested offset; the nearest one was used", err=True)
    if dry_run:
        click.echo("nothing was changed (--dry-run)", err=True)
    else:
        sys.stdout.flush()
        changed = sum(move.old_offset != move.place.offset for move in moves)
        click.echo(f"moved {name} in {changed:,} of {plural(len(moves), 'partition')}", err=True)
