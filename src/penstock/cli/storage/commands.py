"""`penstock storage …`: format the directories of a node before its first start, and show whose they are."""

from __future__ import annotations

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import output_option, parse_assignments
from penstock.cli.render import documents, print_facts, print_json, print_table
from penstock.cli.server import load_settings
from penstock.cli.style import StyledGroup

config_option = click.option(
    "-c", "--config", type=click.Path(dir_okay=False), required=True, help="The node's server.properties."
)
override_option = click.option(
    "--override", "overrides", multiple=True, metavar="NAME=VALUE", help="A setting that overrides the file's."
)


@click.group(cls=StyledGroup)
def command() -> None:
    """Format the directories of a node, and show whose they are."""


@command.command(name="random-uuid")
def random_uuid() -> None:
    """Print a random id for a new cluster, or for a controller's directory."""
    from penstock.cli.storage import format as storage_format
    from penstock.model.ids import format_uuid

    click.echo(format_uuid(storage_format.random_uuid()))


@command.command(name="format")
@config_option
@override_option
@click.option("-t", "--cluster-id", required=True, help="The cluster's id, the same on all its nodes.")
@click.option("-s", "--standalone", is_flag=True, help="The first controller of a quorum that others join later.")
@click.option(
    "-I", "--initial-controllers", metavar="ID@HOST:PORT:DIR,…", help="The first controllers; the same list on each."
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="A controller that joins a quorum later.")
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[name=…,password=…]",
    help="An initial SCRAM user, the same on every controller; repeatable.",
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are already formatted.")
def format_command(
    config: str,
    overrides: tuple[str, ...],
    cluster_id: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    scram: tuple[str, ...],
    ignore_formatted: bool,
) -> None:
    """Format a node's directories for a cluster, as kafka-storage.sh does.

    With controller.quorum.voters only the cluster's id is needed. A quorum found by controller.quorum.bootstrap.servers
    is dynamic, and its first voters are given here.
    """
    from penstock.cli.storage.format import (
        format_directories,
        parse_initial_controllers,
        standalone_controller,
    )
    from penstock.cli.storage.users import parse_user

    if sum((standalone, initial_controllers is not None, no_initial_controllers)) > 1:
        raise click.UsageError(
            "Use one of --standalone, --initial-controllers and --no-initial-controllers; they exclude each other."
        )
    settings = load_settings(config, parse_assignments(overrides, "--override"))
    check_cluster_id(cluster_id)
    controllers = parse_initial_controllers(initial_controllers) if initial_controllers is not None else []
    if standalone:
        controllers = [standalone_controller(settings)]
    if controllers and settings.controller_quorum_voters:
        raise CommandFailure(
            "the first controllers are named twice",
            "controller.quorum.voters is a fixed list, and the other a list that can change",
            "remove controller.quorum.voters from the file, or format without the option",
        )
    told = controllers or no_initial_controllers or settings.controller_quorum_voters
    if settings.is_controller and not told:
        raise CommandFailure(
            "the quorum of this controller is not configured",
            "controller.quorum.voters is not set",
            "add --standalone for the first controller of a new cluster, --initial-controllers for several at once, "
            "or --no-initial-controllers for one that joins later",
        )
    users = [parse_user(text) for text in scram]
    fresh = format_directories(settings, cluster_id, controllers, ignore_formatted, users)
    for path in fresh:
        click.echo(f"formatted {path} for node {settings.node_id} of cluster {cluster_id}")
    if not fresh:
        click.echo("every directory is already formatted")


def check_cluster_id(cluster_id: str) -> None:
    """Reject an invalid id: Kafka accepts letters, digits, dashes and underscores."""
    if not cluster_id or not all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in cluster_id):
        raise CommandFailure(
            f"{cluster_id!r} is not a cluster id",
            "only letters, digits, - and _ are allowed",
            "create one with `penstock storage random-uuid`",
        )


@command.command()
@config_option
@override_option
@output_option
def info(config: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the owners of a node's directories. Exit code 1 if one is not formatted, or they disagree."""
    from penstock.cli.storage.format import read_directories
    from penstock.model.ids import format_uuid

    settings = load_settings(config, parse_assignments(overrides, "--override"))
    known = read_directories(settings)
    problems = [f"{path} is not formatted" for path, present in known.items() if present is None]
    owners = {(present.cluster_id, present.node_id) for present in known.values() if present is not None}
    if len(owners) > 1:
        problems.append("the directories belong to different nodes or clusters")
    if any(node_id != settings.node_id for _, node_id in owners):
        problems.append(f"a directory belongs to another node than {settings.node_id}, the node.id in the file")
    names = ("directory", "cluster_id", "node_id", "directory_id")
    rows = [
        (str(path), present.cluster_id, present.node_id, format_uuid(present.directory_id))
        if present is not None
        else (str(path), None, None, None)
        for path, present in known.items()
    ]
    if as_json:
        print_json({"node_id": settings.node_id, "directories": documents(names, rows), "problems": problems})
    else:
        print_facts([("node", settings.node_id), ("roles", ", ".join(sorted(settings.roles)))])
        print_table([name.replace("_", " ") for name in names], rows)
        for problem in problems:
            click.echo(click.style("problem: ", fg="red") + problem)
    if problems:
        raise click.exceptions.Exit(1)
