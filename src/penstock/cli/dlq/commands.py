"""`penstock dlq …`: list, peek, replay, purge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.client import open_client
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, query_options
from penstock.cli.render import plural, print_json, print_rows, print_table
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.cli.dlq.letters import Letter
    from penstock.cli.wire_client import WireClient

SHOWN_MAX = 40


@click.group(cls=StyledGroup)
def command() -> None:
    """Look at dead letters, send them back, or delete them."""


@command.command("list")
@query_options
def list_topics(connection: Connection, as_json: bool) -> None:
    """List the topics that take dead letters, and how many each has."""
    from penstock.cli import topic_queries
    from penstock.cli.dlq.letters import takes_letters

    rows = []
    with open_client(connection) as client:
        for topic in topic_queries.list_topics(client):
            if not topic.is_hidden and takes_letters(client, topic.name):
                ranges = _ranges(client, topic.name, ())
                letters = sum(end - first for first, end in ranges.values())
                rows.append({"topic": topic.name, "partitions": len(ranges), "letters": letters})
    print_rows(rows, ("topic", "partitions", "letters"), as_json)


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", "numbers", multiple=True, type=click.IntRange(0), help="Default: all partitions.")
@click.option("-n", "--last", type=click.IntRange(1), default=10, show_default=True, help="So many of each partition.")
@query_options
def peek(name: str, numbers: tuple[int, ...], last: int, connection: Connection, as_json: bool) -> None:
    """Show the latest dead letters of a topic: which records they are, who gave them up, and why."""
    from penstock.cli.dlq.letters import as_document, read_letters

    with open_client(connection) as client:
        ranges = _ranges(client, name, numbers)
    latest = {number: (max(first, end - last), end) for number, (first, end) in ranges.items()}
    letters = sorted(read_letters(connection, name, latest), key=lambda letter: letter[:2])
    if as_json:
        print_json([as_document(letter) for letter in letters])
        return
    print_table(("partition", "offset", "record", "group", "tries", "why", "key", "value"), map(_row, letters))


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", "numbers", multiple=True, type=click.IntRange(0), help="Default: all partitions.")
@click.option("--group", help="Only what this group gave up.")
@click.option("--from-topic", help="Only records of this topic.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; send nothing.")
@click.option(
    "--purge",
    "purges",
    is_flag=True,
    help="Delete the dead letters once their records are sent, up to one that is not.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@query_options
def replay(
    name: str,
    numbers: tuple[int, ...],
    group: str | None,
    from_topic: str | None,
    dry_run: bool,
    purges: bool,
    yes: bool,
    connection: Connection,
    as_json: bool,
) -> None:
    """Send the records of dead letters back to where they were, with their keys and headers.

    Each goes to the end of its topic's partition, and every group that reads the topic gets it again. A letter without
    a copy has its record read from the topic, if it is still there.
    """
    from penstock.cli.dlq.letters import Replay, read_letters
    from penstock.cli.topic_queries import delete_records

    if purges and (group or from_topic):
        raise click.UsageError("--purge deletes all dead letters: leave out --group and --from-topic.")
    with open_client(connection) as client:
        ranges = _ranges(client, name, numbers)
        if not dry_run:
            count = sum(end - first for first, end in ranges.values())
            confirm(f"Send the records of {plural(count, 'dead letter')} of {name} back?", yes)
        sender = Replay(connection, client)
        counts: dict[str, int] = {}
        unknown: list[tuple[int, int]] = []
        # By partition, the first that was not sent: only what is before it may be deleted.
        purged_to = {number: end for number, (_, end) in ranges.items()}

        def keep(number: int, offset: int) -> None:
            purged_to[number] = min(purged_to[number], offset)

        for letter in read_letters(connection, name, ranges, lambda *place: unknown.append(place)):
            if group not in (None, letter.account.group) or from_topic not in (None, letter.account.topic):
                continue
            if dry_run or sender.send(letter):
                counts[letter.account.topic] = counts.get(letter.account.topic, 0) + 1
            else:
                keep(letter.partition, letter.offset)
        sender.finish()
        for place in unknown:
            keep(*place)
        if purges and not dry_run:
            delete_records(client, name, purged_to)
    rows = sorted(counts.items())
    if as_json:
        sent = [{"topic": topic, "records": count} for topic, count in rows]
        print_json({"topics": sent, "gone": sender.gone, "unknown": len(unknown)})
        return
    print_table(("topic", "records"), rows)
    if sender.gone:
        click.echo(f"{plural(sender.gone, 'record')} could not be read any more.", err=True)
    if unknown:
        first = f"{name}-{unknown[0][0]} @ {unknown[0][1]}"
        why = "they do not say of which records they are"
        click.echo(f"{plural(len(unknown), 'record')} left out, from {first} on: {why}.", err=True)
    stay = sum(end - purged_to[number] for number, (_, end) in ranges.items())
    if purges and not dry_run and stay:
        click.echo(
            f"{plural(stay, 'dead letter')} kept, from the first that was not sent on: `penstock dlq purge {name}` "
            "deletes them.",
            err=True,
        )


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", "numbers", multiple=True, type=click.IntRange(0), help="Default: all partitions.")
@click.option("--offset", type=click.IntRange(0), help="Only those before this offset.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@query_options
def purge(
    name: str, numbers: tuple[int, ...], offset: int | None, yes: bool, connection: Connection, as_json: bool
) -> None:
    """Delete the dead letters of a topic; the topic itself stays."""
    from penstock.cli.dlq.letters import takes_letters
    from penstock.cli.topic_queries import delete_records

    with open_client(connection) as client:
        if not takes_letters(client, name):
            raise CommandFailure(
                f"{name} is no topic for dead letters",
                "neither its name nor errors.deadletterqueue.group.enable=true marks it as one",
                "`penstock dlq list` shows them; `penstock topic trim` deletes records of any topic",
            )
        ranges = _ranges(client, name, numbers)
        targets = {
            number: end if offset is None else min(max(offset, first), end) for number, (first, end) in ranges.items()
        }
        count = sum(targets[number] - first for number, (first, _) in ranges.items())
        confirm(f"Delete {plural(count, 'dead letter')} of {name}?", yes)
        starts = delete_records(client, name, targets)
    rows = [{"partition": number, "deleted": starts[number] - ranges[number][0]} for number in sorted(starts)]
    print_rows(rows, ("partition", "deleted"), as_json)


def _ranges(client: WireClient, topic: str, numbers: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """The first offset and the end of each partition; what open transactions have written is after the end."""
    from penstock.cli.topic_queries import chosen_partitions, earliest_offsets, latest_offsets

    chosen = chosen_partitions(client, topic, numbers)
    firsts, ends = earliest_offsets(client, topic, chosen), latest_offsets(client, topic, chosen, read_committed=True)
    return {number: (firsts[number], ends[number]) for number in chosen}


def _row(letter: Letter) -> tuple[object, ...]:
    account = letter.account
    return (
        letter.partition,
        letter.offset,
        f"{account.topic}-{account.partition} @ {account.offset}",
        account.group,
        account.delivery_count if account.delivery_count >= 0 else "-",
        account.message,
        _shown(letter.key),
        _shown(letter.value),
    )


def _shown(data: bytes | None) -> str:
    if data is None:
        return "-"
    text = data[: SHOWN_MAX + 1].decode("utf-8", errors="replace")
    # Clients choose these bytes, and a terminal acts on control characters.
    text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
