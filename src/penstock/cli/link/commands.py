"""`penstock link …`: create, list, describe, alter, pause, resume, promote, failover, verify, delete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.client import open_client
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, confirm, connection_options, query_options
from penstock.cli.render import plural, print_facts, print_json, print_table
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.cli.link.cluster import MirrorRow
    from penstock.wire.messages.describe_links import DescribedLink

PROMOTE_S = 60.0
FAILOVER_S = 30.0
COLUMNS = ("topic", "partition", "state", "lag", "source_end", "mirrored_offset", "reason")

_config = click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting; may be repeated.")
_config_file = click.option(
    "--config-file", type=click.Path(dir_okay=False), help="Properties of a client of the source, as for -X."
)
_some_topics = click.option("--topics", multiple=True, metavar="TOPIC", help="Only these mirrors; may be repeated.")


@click.group(cls=StyledGroup)
def command() -> None:
    """Mirror topics of another cluster here, with identical offsets; promote them or fail over."""


@command.command()
@click.argument("name")
@click.option("--source", required=True, metavar="HOST:PORT,…", help="Brokers of the source cluster.")
@click.option(
    "--topics", "patterns", multiple=True, required=True, help="A topic or pattern (shop.*); may be repeated."
)
@click.option("--exclude", multiple=True, help="A topic or pattern that is not mirrored; may be repeated.")
@_config
@_config_file
@connection_options
def create(
    name: str,
    source: str,
    patterns: tuple[str, ...],
    exclude: tuple[str, ...],
    configs: tuple[str, ...],
    config_file: str | None,
    connection: Connection,
) -> None:
    """Mirror topics of another cluster in this one.

    The brokers here connect to the source, with the settings in --config and --config-file; certificates in files are
    sent as text. Topics that match later are mirrored when they appear.

    Example: penstock link create eu --source broker.eu:9093 --topics 'shop.*' --config-file eu.properties
    """
    from penstock.cli.link import cluster
    from penstock.cli.link.settings import read_link_settings

    settings = read_link_settings(source, configs, config_file)
    with open_client(connection) as client:
        found = cluster.change(
            client, cluster.CREATE, name, f"link {name} cannot be created", patterns, exclude, dict(settings)
        )
    click.echo(f"created link {click.style(name, bold=True)}: it mirrors {plural(len(found), 'topic')} now")


@command.command("list")
@query_options
def list_links(connection: Connection, as_json: bool) -> None:
    """List links with the states of their mirrors."""
    from penstock.cli.link import cluster

    with open_client(connection) as client:
        found = cluster.find_links(client)
    if as_json:
        print_json([_json_of(link) for link in found])
    elif found:
        rows = []
        for link in found:
            mirrors = cluster.mirror_rows(link)
            lags = [row.lag for row in mirrors if row.lag is not None]
            rows.append(
                (
                    link.name,
                    _setting(link, "bootstrap.servers"),
                    "paused" if link.is_paused else "active",
                    len(link.mirrors),
                    max(lags, default=None),
                    sum(row.state == "failed" for row in mirrors),
                    link.problem,
                )
            )
        print_table(("link", "source", "state", "topics", "lag max", "failed", "problem"), rows)
    else:
        click.echo("no links: `penstock link create NAME --source HOST:PORT --topics PATTERN` makes one", err=True)


@command.command()
@click.argument("name")
@query_options
def describe(name: str, connection: Connection, as_json: bool) -> None:
    """Show a link, its settings without secrets, and the state of every mirror partition."""
    from penstock.cli.link import cluster

    with open_client(connection) as client:
        link = cluster.find_link(client, name)
    if as_json:
        print_json(_json_of(link))
        return
    facts = [
        ("link", click.style(name, bold=True)),
        ("source cluster", link.source_cluster_id),
        ("topics", ", ".join(link.topics)),
        ("exclude", ", ".join(link.exclude) or "-"),
        ("state", "paused" if link.is_paused else "active"),
    ]
    if link.problem:
        facts.append(("problem", link.problem))
    facts += [(row.name, "(hidden)" if row.value is None else _short(row.value)) for row in link.configs]
    print_facts(facts)
    _print_rows(cluster.mirror_rows(link))


@command.command()
@click.argument("name")
@click.option("--source", metavar="HOST:PORT,…", help="Other brokers of the same source cluster.")
@click.option("--topics", "patterns", multiple=True, help="The topics and patterns, instead of those so far.")
@click.option("--exclude", multiple=True, help="What is not mirrored, instead of what was excluded so far.")
@click.option("--remove-config", "removed", multiple=True, metavar="NAME", help="A setting to remove; may be repeated.")
@_config
@_config_file
@connection_options
def alter(
    name: str,
    source: str | None,
    patterns: tuple[str, ...],
    exclude: tuple[str, ...],
    removed: tuple[str, ...],
    configs: tuple[str, ...],
    config_file: str | None,
    connection: Connection,
) -> None:
    """Change patterns and settings of a link.

    Topics that are mirrored already stay mirrors. A change of where or how the link connects needs its secrets again.
    """
    from penstock.cli.link import cluster
    from penstock.cli.link.settings import read_link_settings

    settings: dict[str, str | None] = {**read_link_settings(source, configs, config_file), **dict.fromkeys(removed)}
    if not settings and not patterns and not exclude:
        raise click.UsageError("Give what to change: --source, --topics, --exclude, --config or --remove-config.")
    with open_client(connection) as client:
        cluster.change(
            client,
            cluster.ALTER,
            name,
            f"link {name} cannot be altered",
            patterns or None,
            exclude or None,
            settings,
        )
    click.echo(f"altered link {name}")


@command.command()
@click.argument("name")
@connection_options
def pause(name: str, connection: Connection) -> None:
    """Stop mirroring for a while."""
    from penstock.cli.link import cluster

    with open_client(connection) as client:
        cluster.change(client, cluster.PAUSE, name, f"link {name} cannot be paused")
    click.echo(f"paused link {name}")


@command.command()
@click.argument("name")
@connection_options
def resume(name: str, connection: Connection) -> None:
    """Continue a paused link, and cancel promotions that are not complete."""
    from penstock.cli.link import cluster

    with open_client(connection) as client:
        cluster.change(client, cluster.RESUME, name, f"link {name} cannot be resumed")
        cluster.change(client, cluster.CANCEL, name, f"promotions of link {name} cannot be canceled")
    click.echo(f"resumed link {name}")


@command.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
def delete(name: str, yes: bool, connection: Connection) -> None:
    """Delete a link whose mirrors are all promoted or deleted."""
    from penstock.cli.link import cluster

    confirm(f"Delete link {name}?", yes)
    with open_client(connection) as client:
        cluster.change(client, cluster.DELETE, name, f"link {name} cannot be deleted")
    click.echo(f"deleted link {name}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@command.command()
@click.argument("name")
@_some_topics
@click.option("--timeout", "timeout_s", default=PROMOTE_S, show_default=True, help="How long to wait, in seconds.")
@query_options
def promote(name: str, topics: tuple[str, ...], timeout_s: float, connection: Connection, as_json: bool) -> None:
    """Make mirrors writable once they have everything that the source has.

    Stop the writers at the source first: what is written there afterwards is not mirrored any more. Every leader reads
    the source's end anew and confirms that nothing is missing. What takes too long is canceled, topic by topic, and
    mirrored as before.
    """
    from penstock.cli.link import cluster

    with open_client(connection) as client:
        started = time.monotonic()
        named = cluster.change(
            client, cluster.PROMOTE, name, f"mirrors of link {name} cannot be promoted", topics or None
        )
        last: list[MirrorRow] = []
        rows = cluster.wait_until_stopped(
            client, name, named, timeout_s, lambda seen: last.__setitem__(slice(None), seen)
        )
        pause_s = time.monotonic() - started
        if rows is None:
            canceled = cluster.change(client, cluster.CANCEL, name, "the promotion cannot be canceled", named)
            promoted = sorted({*named} - {*canceled})
            late = [row for row in last if row.state != cluster.STOPPED or row.open_transactions]
            shown = ", ".join(f"{row.topic}-{row.partition} ({row.reason or f'lag {row.lag}'})" for row in late[:5])
            raise CommandFailure(
                f"not all mirrors of link {name} were promoted within {timeout_s:.0f} s; "
                + (
                    f"canceled, and mirrored on: {_some(canceled)}"
                    if canceled
                    else "all are writable, but not all of their leaders have reported yet"
                ),
                (f"promoted, and writable: {_some(promoted)}; " if promoted else "") + f"not ready: {shown}",
                "stop the writers at the source, or use `penstock link failover` if the source is lost"
                if canceled
                else f"`penstock link describe {name}` shows the offsets as they come",
            )
    if as_json:
        print_json({"link": name, "write_pause_s": round(pause_s, 3), "partitions": [_row_json(row) for row in rows]})
        return
    _print_rows(rows)
    click.echo(f"promoted {plural(len(named), 'topic')}; from the command until all were writable: {pause_s:.2f} s")


@command.command()
@click.argument("name")
@_some_topics
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@query_options
def failover(name: str, topics: tuple[str, ...], yes: bool, connection: Connection, as_json: bool) -> None:
    """Make mirrors writable at once, with what they have; for a source that is lost.

    Reports for each partition where what was mirrored ends, and how much was known to be missing. Transactions that
    were open at the source are aborted.
    """
    from penstock.cli.link import cluster

    confirm(f"Fail over link {name}? What the source has and was not mirrored yet is left behind.", yes)
    with open_client(connection) as client:
        before = {(row.topic, row.partition): row for row in cluster.mirror_rows(cluster.find_link(client, name))}
        named = cluster.change(
            client, cluster.FAILOVER, name, f"mirrors of link {name} cannot be failed over", topics or None
        )
        rows = cluster.wait_until_stopped(client, name, named, FAILOVER_S, lambda _: None)
        if rows is None:
            raise CommandFailure(
                "the topics are writable, but not all of their leaders have reported yet",
                "a partition may have no leader",
                f"`penstock link describe {name}` shows the offsets as they come",
            )
    found = []
    for row in rows:
        known = before.get((row.topic, row.partition))
        end = known.source_end if known is not None else None
        missing = None if end is None or row.mirrored_offset is None else max(0, end - row.mirrored_offset)
        found.append((row.topic, row.partition, row.mirrored_offset, end, missing))
    if as_json:
        names = ("topic", "partition", "mirrored_offset", "source_end", "missing")
        print_json({"link": name, "partitions": [dict(zip(names, row, strict=True)) for row in found]})
        return
    print_table(("topic", "partition", "mirrored up to", "source's last known end", "known missing"), found)
    click.echo(f"failed over {plural(len(named), 'topic')}; what the source had after its last known end is not known")


@command.command()
@click.argument("name")
@_some_topics
@click.option("--source", metavar="HOST:PORT,…", help="Brokers of the source, if not those of the link.")
@_config
@_config_file
@query_options
def verify(
    name: str,
    topics: tuple[str, ...],
    source: str | None,
    configs: tuple[str, ...],
    config_file: str | None,
    connection: Connection,
    as_json: bool,
) -> None:
    """Compare mirrors with the source, batch by batch, by offsets and checksums; ends with code 1 if they differ.

    Reads both clusters from here, as a client: the link's secrets are not known to it, so give how to sign in to the
    source. Compacted topics may differ, as each cluster compacts on its own.
    """
    from penstock.cli.link import cluster
    from penstock.cli.link.settings import read_link_settings
    from penstock.cli.link.verify import compare
    from penstock.cli.wire_client import WireClient
    from penstock.model.ids import TopicPartition

    with open_client(connection) as client:
        link = cluster.find_link(client, name)
        settings = read_link_settings(source or _setting(link, "bootstrap.servers"), configs, config_file)
        address = settings.pop("bootstrap.servers")
        found = []
        with WireClient(Connection(address, settings)) as theirs:
            for row in cluster.mirror_rows(link, topics or None):
                end = row.mirrored_offset if row.state == cluster.STOPPED else None
                found.append(compare(theirs, client, TopicPartition(row.topic, row.partition), end))
    if as_json:
        print_json([one._asdict() for one in found])
    else:
        print_table(
            ("topic", "partition", "from", "to", "batches", "different", "first at"),
            [(*one[:5], len(one.differences), next(iter(one.differences), None)) for one in found],
        )
    if any(one.differences for one in found):
        raise SystemExit(1)


def _setting(link: DescribedLink, name: str) -> str:
    return next((row.value or "" for row in link.configs if row.name == name), "")


def _short(value: str) -> str:
    first, newline, _ = value.partition("\n")
    return f"{first} …" if newline else value


def _print_rows(rows: list[MirrorRow]) -> None:
    print_table(
        [name.replace("_", " ") for name in COLUMNS], [[getattr(row, name) for name in COLUMNS] for row in rows]
    )


def _row_json(row: MirrorRow) -> dict[str, Any]:
    return row._asdict()


def _json_of(link: DescribedLink) -> dict[str, Any]:
    from penstock.cli.link import cluster

    return {
        "link": link.name,
        "source_cluster_id": link.source_cluster_id,
        "topics": list(link.topics),
        "exclude": list(link.exclude),
        "paused": link.is_paused,
        "problem": link.problem or None,
        "config": {row.name: row.value for row in link.configs},
        "partitions": [_row_json(row) for row in cluster.mirror_rows(link)],
    }
