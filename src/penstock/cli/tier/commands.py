"""`penstock tier …`: what is in object storage, and whether it is whole."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, connection_options, output_option, parse_assignments, query_options
from penstock.cli.render import print_json, print_table
from penstock.cli.server import load_settings
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from penstock.cli.tier.restore_plan import TopicPlan
    from penstock.storage.tier.inventory import Inventory, Orphan, Problem
    from penstock.storage.tier.object_store import RemoteStore
    from penstock.storage.tier.sealing import Seals

REQUEST_TIMEOUT_MS = 30_000
GRACE_S = 3600
RESTORE_S = 600
UNSOUND = 1


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which store to look at: that of a node, or one by its URL."""
    function = click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the store.")(
        function
    )
    function = click.option("--url", help="The store, such as s3://bucket/prefix.")(function)
    return click.option(
        "-c", "--config", type=click.Path(dir_okay=False), help="A node's server.properties that names the store."
    )(function)


@click.group(cls=StyledGroup)
def command() -> None:
    """Look at segments in object storage, and check them."""


@command.command()
@query_options
def status(connection: Connection, as_json: bool) -> None:
    """Show what a cluster knows to be in object storage, by partition."""
    from penstock.cli.tier.metadata import describe, read_metadata

    _, partitions = read_metadata(connection)
    rows = describe(partitions)
    if as_json:
        print_json(rows)
        return
    titles = ("topic", "partition", "segments", "bytes", "first_offset", "last_offset", "unfinished")
    print_table(titles, [[str(row[title]) for title in titles] for row in rows])


@command.command(name="list")
@store_options
@click.option("--cluster-id", default="", help="Only this cluster's.")
@output_option
def list_command(config: str | None, url: str | None, options: tuple[str, ...], cluster_id: str, as_json: bool) -> None:
    """List the segments in a store, from the store alone."""
    from penstock.model.ids import format_uuid
    from penstock.storage.tier.inventory import take_inventory

    store = _open(config, url, options)
    inventory: Inventory = _run(take_inventory(store, cluster_id))
    rows: list[dict[str, object]] = [
        {
            "cluster_id": one.place.cluster_id,
            "topic": one.place.topic,
            "topic_id": format_uuid(one.place.topic_id),
            "partition": one.place.partition,
            "first_offset": one.start_offset,
            "segment_id": format_uuid(one.segment_id),
            "bytes": sum(one.sizes.values()),
            "finished": one.is_finished,
        }
        for one in inventory.in_order()
    ]
    if as_json:
        print_json(rows)
        return
    titles = ("cluster_id", "topic", "partition", "first_offset", "segment_id", "bytes", "finished")
    print_table(titles, [[str(row[title]) for title in titles] for row in rows])


@command.command()
@connection_options
@store_options
@click.option("--clean", is_flag=True, help="Delete what the cluster does not know of.")
@click.option("--grace", "grace_s", default=GRACE_S, show_default=True, help="Leave what is younger than this, in s.")
@click.option("--quick", is_flag=True, help="Compare names and sizes only; read no objects.")
@output_option
def verify(
    connection: Connection,
    config: str | None,
    url: str | None,
    options: tuple[str, ...],
    clean: bool,
    grace_s: int,
    quick: bool,
    as_json: bool,
) -> None:
    """Compare a cluster's metadata with its objects and their checksums, and find objects that nothing refers to.

    Ends with code 1 if something is missing or damaged.
    """
    from penstock.cli.tier.metadata import expected_segments, read_metadata, read_topic_ids
    from penstock.cli.wire_client import command_client
    from penstock.storage.tier.inventory import check_segment, compare, take_inventory
    from penstock.wire.messages.describe_cluster import DescribeClusterRequest

    store = _open(config, url, options)
    # Requested in this thread: the others do not know the running command.
    client = command_client(connection)
    cluster_id = client.ask(DescribeClusterRequest()).cluster_id

    async def look() -> tuple[Inventory, list[Problem], list[Orphan], int]:
        inventory = await take_inventory(store, cluster_id)
        _, partitions = await asyncio.to_thread(read_metadata, connection)
        expected = expected_segments(cluster_id, partitions)
        # Asked for last: a topic's document is only written when the topic is there.
        topic_ids = await asyncio.to_thread(read_topic_ids, client)
        problems, orphans = compare(inventory, expected, topic_ids | {key.topic_id for key in partitions})
        flawed = {problem.path.removesuffix(".log") for problem in problems}
        for segment_id, one in expected.items():
            if not quick and one.is_readable and one.stem not in flawed:
                problems += await check_segment(store, inventory.segments[segment_id], one)
        removed = 0
        for orphan in orphans if clean else ():
            if time.time() * 1000 - orphan.modified_ms >= grace_s * 1000:
                await store.delete(orphan.paths)
                removed += 1
        return inventory, problems, orphans, removed

    inventory, problems, orphans, removed = _run(look())
    if as_json:
        print_json(
            {
                "segments": len(inventory.segments),
                "problems": [problem._asdict() for problem in problems],
                "orphans": [orphan.name for orphan in orphans],
                "removed": removed,
            }
        )
    else:
        for problem in problems:
            click.echo(f"{problem.path} {problem.what}")
        for orphan in orphans:
            click.echo(f"{orphan.name} is an orphan")
        click.echo(
            f"{len(inventory.segments)} segments, {len(problems)} problems, {len(orphans)} orphans, "
            f"{removed} of them removed"
        )
    if problems:
        raise SystemExit(UNSOUND)


@command.command()
@connection_options
@store_options
@click.option("--from-cluster", help="The lost cluster's id, if the store has several.")
@click.option("--topics", help="Only these, separated by commas.")
@click.option("--dry-run", is_flag=True, help="Show what would be restored, and what is missing.")
@click.option("--partial", is_flag=True, help="Restore what is whole, although something is missing or damaged.")
@click.option("--replication-factor", type=click.IntRange(1), help="Replicas, if not as many as there were.")
@click.option("--config-override", "overrides", multiple=True, metavar="NAME=VALUE", help="A setting for all topics.")
@click.option("--keys-file", type=click.Path(dir_okay=False), help="The keys of encrypted segments, if not with -c.")
@click.option("--timeout", "timeout_s", default=RESTORE_S, show_default=True, help="How long brokers may take, in s.")
@output_option
def restore(
    connection: Connection,
    config: str | None,
    url: str | None,
    options: tuple[str, ...],
    from_cluster: str | None,
    topics: str | None,
    dry_run: bool,
    partial: bool,
    replication_factor: int | None,
    overrides: tuple[str, ...],
    keys_file: str | None,
    timeout_s: int,
    as_json: bool,
) -> None:
    """Bring the topics of a lost cluster back into a new one, from the store alone.

    Topics keep their names, ids, settings, offsets and leader epochs, and producers their state. Run again, it
    continues. Ends with code 1, and changes nothing, if something is missing or damaged, unless --partial is given.
    """
    from penstock.cli.tier.restore import Restore
    from penstock.cli.tier.restore_plan import describe_plans, find_cluster, plan_topics
    from penstock.cli.wire_client import WireClient

    store, seals = _open(config, url, options), _open_seals(config, keys_file)
    wanted = {name.strip() for name in (topics or "").split(",")} - {""}
    settings = parse_assignments(overrides, "--config-override")

    async def look() -> list[TopicPlan]:
        source, inventory = await find_cluster(store, from_cluster)
        return await plan_topics(store, seals, source, inventory, wanted, settings)

    plans = _run(look())
    with WireClient(connection) as client:
        restoring = Restore(client, store, plans, lambda line: click.echo(line, err=True))
        rows = describe_plans(plans, restoring.missing)
        if as_json:
            print_json(rows)
        else:
            titles = ("topic", "topic_id", "partitions", "segments", "bytes", "records", "state")
            print_table(titles, [[row[title] for title in titles] for row in rows])
        restoring.check(partial=partial)
        if not dry_run:
            _run(restoring.copy_objects())
            restoring.create_topics(replication_factor)
            restoring.await_leaders(timeout_s)
            restoring.tell_what_is_left()


def _open(config: str | None, url: str | None, options: tuple[str, ...]) -> RemoteStore:
    from penstock.node.tiering import open_store
    from penstock.storage.tier.object_store import RemoteStore, StoreError

    try:
        if url:
            return RemoteStore.open(url, parse_assignments(options, "--option"), REQUEST_TIMEOUT_MS)
        if config:
            return open_store(load_settings(config, {}), RemoteStore.open)
    except StoreError as error:
        raise CommandFailure("the store cannot be opened", error.message) from error
    raise CommandFailure("which store?", "name it with --url, or a node's file with -c")


def _open_seals(config: str | None, keys_file: str | None) -> Seals:
    from penstock.node.tiering import open_seals
    from penstock.storage.tier.object_store import StoreError
    from penstock.storage.tier.sealing import Seals

    try:
        return open_seals(load_settings(config, {})) if config and not keys_file else Seals(keys_file=keys_file)
    except StoreError as error:
        raise CommandFailure("the keys cannot be read", error.message) from error


def _run(work: Any) -> Any:
    from penstock.storage.tier.object_store import StoreError

    try:
        return asyncio.run(work)
    except StoreError as error:
        raise CommandFailure("the store cannot be read", error.message) from error
