"""The entry point: the list of commands, the options that all of them share, and error handling."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

import click

from penstock.cli.failures import report_unexpected
from penstock.cli.lazy import LazyGroup
from penstock.cli.options import SharedOptions
from penstock.model.version import __version__

COMMANDS = {
    "up": ("penstock.cli.up.command", "Start a node or a cluster here and show that it works."),
    "server": ("penstock.cli.server", "Run one node from a properties file."),
    "storage": ("penstock.cli.storage.commands", "Format the directories of a node before its first start."),
    "topic": ("penstock.cli.topic", "Create, list, describe, change, trim and delete topics."),
    "group": ("penstock.cli.group.commands", "List, describe, move and delete consumer groups."),
    "dlq": ("penstock.cli.dlq.commands", "Look at dead letters of share groups, send them back, delete them."),
    "txn": ("penstock.cli.txn.commands", "List, describe and abort transactions."),
    "produce": ("penstock.cli.records.produce", "Send records from standard input or a file."),
    "consume": ("penstock.cli.records.consume", "Read records and print them."),
    "cluster": (
        "penstock.cli.cluster.commands",
        "Show the cluster; move replicas, add and remove nodes.",
    ),
    "security": (
        "penstock.cli.security.commands",
        "Say who may connect and do what: certificates, users, access lists.",
    ),
    "tier": ("penstock.cli.tier.commands", "Look at segments in object storage, and check them."),
    "link": ("penstock.cli.link.commands", "Mirror topics of another cluster here; promote them or fail over."),
    "tenant": ("penstock.cli.tenant.commands", "Share a cluster: tenants with users, names and limits of their own."),
    "gateway": ("penstock.cli.gateway", "Serve HTTP: REST for records and topics, and the schema registry."),
    "app": ("penstock.cli.app", "Run applications in Python: functions for topics."),
    "pipeline": ("penstock.cli.pipeline", "Run data pipelines on Spark."),
    "demo": ("penstock.cli.demo", "Learn where the demo is, an example in the repository."),
    "log": ("penstock.cli.log.commands", "Inspect segment, index and checkpoint files."),
    "doctor": ("penstock.cli.doctor.command", "Find common problems and how to fix them."),
    "completion": ("penstock.cli.completion", "Print the completion script for a shell."),
    "version": ("penstock.cli.version", "Print the versions of Penstock and of its parts."),
}

EPILOG = "Most commands take -b, -X and -o too: `penstock topic list -b broker:9092 -o json`."


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "-b",
    "--bootstrap",
    envvar="PENSTOCK_BOOTSTRAP",
    default="localhost:9092",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT,…",
    help="The bootstrap servers of the cluster.",
)
@click.option("-X", "properties", multiple=True, metavar="NAME=VALUE", help="A librdkafka property; may be repeated.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For humans or programs.")
@click.version_option(__version__, "--version", prog_name="penstock")
@click.pass_context
def penstock(context: click.Context, bootstrap: str, properties: tuple[str, ...], output: str) -> None:
    """A message broker that speaks Apache Kafka's protocol.

    `penstock up` starts one; `penstock doctor` diagnoses what is wrong.
    """
    context.obj = SharedOptions(bootstrap, properties, output)


def main() -> None:
    """Run the command in the process's arguments, and exit with its code."""
    sys.excepthook = report_unexpected
    try:
        penstock(prog_name="penstock")
    except SystemExit as leaving:
        if "obstore" in sys.modules:
            _leave_at_once(leaving.code)
        raise


def _leave_at_once(code: object) -> None:
    """End the process without taking down the interpreter.

    Threads of obstore tell of the last request's end while that is read already; one of them that then finds the
    interpreter half taken down aborts the process, and the command seems to have failed.
    """
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
