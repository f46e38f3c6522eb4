"""`penstock topic …`: create, list, describe, delete, alter, add-partitions, trim, hot."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from penstock.cli.client import open_client
from penstock.cli.options import Connection, confirm, connection_options, parse_assignments, query_options
from penstock.cli.render import documents, human_bytes, plural, print_facts, print_json, print_table
from penstock.cli.style import StyledGroup


@click.group(cls=StyledGroup)
def command() -> None:
    """Create, list, describe, change, trim and delete topics."""


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option("-p", "--partitions", type=click.IntRange(1), help="Default: the broker's num.partitions.")
@click.option("-r", "--replication-factor", type=click.IntRange(1), help="Default: the broker's default.")
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A topic setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Do not fail if a topic already exists.")
@click.option("--validate-only", is_flag=True, help="Only validate; create nothing.")
@query_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    connection: Connection,
    as_json: bool,
) -> None:
    """Create topics.

    Example: penstock topic create orders -p 6 -c retention.ms=3600000
    """
    from penstock.cli import topic_queries
    from penstock.client.operations import topics

    settings = parse_assignments(configs, "-c")
    shape = (partitions or topics.DEFAULT, replication_factor or topics.DEFAULT, settings)
    results = []
    with open_client(connection) as client:
        existing = {topic.name for topic in topic_queries.list_topics(client)} if if_not_exists else set()
        for name in names:
            if name not in existing:
                what = f"cannot create topic {name}"
                client.attempt(what, topics.create_topic, name, *shape, validate_only=validate_only)
            verdict = "exists" if name in existing else "valid" if validate_only else "created"
            results.append({"topic": name, "result": verdict})
    if as_json:
        print_json(results)
        return
    for result in results:
        click.echo(f"{result['result']} {click.style(result['topic'], bold=True)}")


@command.command("list")
@click.argument("pattern", default="*")
@click.option("--internal", is_flag=True, help="Show internal topics (those that start with __) too.")
@query_options
def list_topics(pattern: str, internal: bool, connection: Connection, as_json: bool) -> None:
    """List topics whose name matches PATTERN (`*`, `?` and `[a-z]` as in a shell)."""
    import fnmatch

    from penstock.cli import topic_queries

    with open_client(connection) as client:
        topics = [
            topic
            for topic in topic_queries.list_topics(client)
            if (internal or not topic.is_hidden) and fnmatch.fnmatchcase(topic.name, pattern)
        ]
    rows = [(topic.name, len(topic.partitions), topic.replication_factor, topic.is_hidden) for topic in topics]
    if as_json:
        print_json(documents(("name", "partitions", "replication_factor", "internal"), rows))
    elif rows:
        print_table(("topic", "partitions", "replicas"), [row[:3] for row in rows])
    else:
        click.echo("no topics" if pattern == "*" else f"no topic matches {pattern!r}", err=True)


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("--all-configs", is_flag=True, help="Show every setting, not only those that were changed.")
@query_options
def describe(name: str, all_configs: bool, connection: Connection, as_json: bool) -> None:
    """Show a topic's partitions, offsets, size and settings."""
    from penstock.cli.cluster.view import read_sizes
    from penstock.cli.topic_queries import describe_topic, earliest_offsets, latest_offsets, topic_configs
    from penstock.client.view import BrokerView
    from penstock.model.ids import TopicPartition

    with open_client(connection) as client:
        topic = describe_topic(client, name)
        online = [partition.partition for partition in topic.partitions if partition.leader >= 0]
        first = earliest_offsets(client, name, online)
        last = latest_offsets(client, name, online)
        leaders = {partition.leader for partition in topic.partitions}
        brokers = [BrokerView(number, *at) for number, at in client.cluster.brokers.items() if number in leaders]
        sizes = read_sizes(client, brokers, [TopicPartition(name, number) for number in online])
        settings = topic_configs(client, name)
    partitions = [
        {
            **asdict(partition),
            "leader": partition.leader if partition.leader >= 0 else None,
            "start_offset": first.get(partition.partition),
            "end_offset": last.get(partition.partition),
            "size_bytes": sizes.get((TopicPartition(name, partition.partition), partition.leader)),
        }
        for partition in topic.partitions
    ]
    configs = [asdict(config) for config in settings if all_configs or config.source == "dynamic topic"]
    described = {
        "name": name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "replication_factor": topic.replication_factor,
        "partitions": partitions,
        "configs": configs,
    }
    if as_json:
        print_json(described)
        return
    records = sum(last[number] - first[number] for number in online)
    print_facts(
        [
            ("topic", click.style(name, bold=True)),
            ("id", topic.topic_id),
            ("partitions", len(partitions)),
            ("replication", topic.replication_factor),
            ("offsets held", f"{records:,}"),
        ]
    )
    _print_partitions(partitions)
    if configs:
        print_table(("setting", "value", "from"), [tuple(config.values()) for config in configs])
    else:
        click.echo("every setting has its default value")


def _print_partitions(partitions: list[dict[str, Any]]) -> None:
    rows = [
        (
            partition["partition"],
            partition["leader"] if partition["leader"] is not None else "none",
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["in_sync_replicas"])),
            partition["start_offset"],
            partition["end_offset"],
            human_bytes(partition["size_bytes"]) if partition["size_bytes"] is not None else None,
        )
        for partition in partitions
    ]
    print_table(("partition", "leader", "replicas", "in sync", "first offset", "next offset", "size"), rows)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
def delete(names: tuple[str, ...], yes: bool, connection: Connection) -> None:
    """Delete topics and all their records."""
    from penstock.client.operations import topics

    with open_client(connection) as client:
        client.run(topics.describe_cluster)
        confirm(f"Delete {', '.join(names)} and all records in {'it' if len(names) == 1 else 'them'}?", yes)
        for name in names:
            client.attempt(f"cannot delete topic {name}", topics.delete_topic, name)
            click.echo(f"deleted {click.style(name, bold=True)}")


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="Set a setting; repeatable.")
@click.option("-u", "--unset", multiple=True, metavar="NAME", help="Reset a setting to its default.")
@connection_options
def alter(name: str, configs: tuple[str, ...], unset: tuple[str, ...], connection: Connection) -> None:
    """Change a topic's settings; the ones not named keep their values."""
    settings = parse_assignments(configs, "-c")
    if not settings and not unset:
        raise click.UsageError("Name a setting to change with -c NAME=VALUE or --unset NAME.")
    both = sorted(set(settings) & set(unset))
    if both:
        raise click.UsageError(f"{both[0]} is both set and unset.")
    from penstock.client.operations.configs import TOPIC, alter_configs

    with open_client(connection) as client:
        what = f"cannot change the settings of topic {name}"
        client.attempt(what, alter_configs, TOPIC, name, {**settings, **dict.fromkeys(unset)})
    for key, value in settings.items():
        click.echo(f"{name}: {key} = {value}")
    for key in unset:
        click.echo(f"{name}: {key} is reset to its default")


@command.command("add-partitions")
@click.argument("name", metavar="TOPIC")
@click.option("-n", "--count", type=click.IntRange(1), help="How many partitions to add.")
@click.option("--total", type=click.IntRange(1), help="The new number of partitions.")
@connection_options
def add_partitions(name: str, count: int | None, total: int | None, connection: Connection) -> None:
    """Add partitions to a topic.

    Records with a key may go to other partitions afterwards, so the order within a key holds only from then on.
    """
    if (count is None) == (total is None):
        raise click.UsageError("Use either -n (how many to add) or --total (the new number).")
    from penstock.cli.topic_queries import describe_topic
    from penstock.client.operations import topics

    with open_client(connection) as client:
        present = len(describe_topic(client, name).partitions)
        wanted = total if total is not None else present + (count or 0)
        client.attempt(f"cannot raise topic {name} to {wanted} partitions", topics.add_partitions, name, wanted)
    click.echo(f"{name}: {present} → {wanted} partitions")


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", "numbers", multiple=True, type=click.IntRange(0), help="Default: all partitions.")
@click.option("--offset", type=click.IntRange(0), help="Delete the records before this offset.")
@click.option(
    "--before", metavar="TIME", help="Delete the records before a time: 2026-01-31T10:00, 1700000000000, -1h."
)
@click.option("--all", "everything", is_flag=True, help="Delete every record.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@query_options
def trim(
    name: str,
    numbers: tuple[int, ...],
    offset: int | None,
    before: str | None,
    everything: bool,
    yes: bool,
    connection: Connection,
    as_json: bool,
) -> None:
    """Delete a topic's oldest records; the topic itself stays."""
    import time

    from penstock.cli.group.offset_spec import parse_timestamp
    from penstock.cli.topic_queries import chosen_partitions, delete_records, earliest_offsets, offsets_at
    from penstock.client.operations.offsets import HIGH_WATERMARK

    if [offset is not None, before is not None, everything].count(True) != 1:
        raise click.UsageError("Use one of --offset, --before and --all.")
    timestamp_ms = parse_timestamp(before, int(time.time() * 1000)) if before is not None else None
    with open_client(connection) as client:
        chosen = chosen_partitions(client, name, numbers)
        firsts = earliest_offsets(client, name, chosen)
        if timestamp_ms is not None:
            targets = offsets_at(client, name, chosen, timestamp_ms)
        else:
            targets = dict.fromkeys(chosen, HIGH_WATERMARK if offset is None else offset)
            if offset is not None:
                # A partition that already starts later is done; Kafka would answer that the offset is out of range.
                targets = {number: max(offset, firsts[number]) for number in chosen}
        confirm(f"Delete the oldest records of {name}, partitions {', '.join(map(str, chosen))}?", yes)
        lows = delete_records(client, name, targets)
    rows = [(number, firsts[number], lows[number], lows[number] - firsts[number]) for number in sorted(lows)]
    if as_json:
        print_json(documents(("partition", "start_offset_before", "start_offset", "offsets_removed"), rows))
    else:
        print_table(("partition", "first offset before", "first offset now", "removed"), rows)


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", "numbers", multiple=True, type=click.IntRange(0), help="Repeatable; default: all.")
@click.option("-n", "--keys", type=click.IntRange(1, 100), default=10, show_default=True, help="Keys to show.")
@click.option(
    "--records",
    type=click.IntRange(1, 1_000_000),
    default=100_000,
    show_default=True,
    help="Latest records that each broker looks at.",
)
@click.option("--by-bytes", is_flag=True, help="Order by bytes instead of records.")
@query_options
def hot(
    name: str,
    numbers: tuple[int, ...],
    keys: int,
    records: int,
    by_bytes: bool,
    connection: Connection,
    as_json: bool,
) -> None:
    """Show the keys with the most records and bytes among a topic's latest.

    Example: penstock topic hot orders --by-bytes
    """
    from penstock.cli.hot_keys import find_hot_keys

    with open_client(connection) as client:
        found = find_hot_keys(client, name, numbers, records, keys)
    shares = (max(1, found.records), max(1, found.size_bytes))
    rows = [
        {
            "key": one.text,
            "partitions": one.partitions,
            "records": one.records,
            "records_share": one.records / shares[0],
            "size_bytes": one.size_bytes,
            "bytes_share": one.size_bytes / shares[1],
        }
        for one in found.top(keys, by_bytes=by_bytes)
    ]
    if as_json:
        names = ("records", "size_bytes", "keyless_records", "keyless_bytes", "records_error", "bytes_error")
        print_json({"topic": name, **{each: getattr(found, each) for each in names}, "keys": rows})
        return
    print_table(
        ("key", "partition", "records", "share", "bytes", "share of bytes"),
        [
            (
                one.text,
                ", ".join(map(str, one.partitions)),
                f"{one.records:,}",
                f"{one.records / shares[0]:.1%}",
                human_bytes(one.size_bytes),
                f"{one.size_bytes / shares[1]:.1%}",
            )
            for one in found.top(keys, by_bytes=by_bytes)
        ],
    )
    error = max(found.records_error / shares[0], found.bytes_error / shares[1])
    exactness = f"shares may be too low by up to {error:.2%}" if error else "counted exactly"
    keyless = f", {found.keyless_records / shares[0]:.1%} of them without a key" if found.keyless_records else ""
    click.echo(
        f"{plural(found.records, 'record')} of {plural(found.partitions, 'partition')}{keyless}; {exactness}", err=True
    )
