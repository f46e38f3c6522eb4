"""`penstock server --config FILE`: run one node."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.logs import log_options, log_to_stderr
from penstock.cli.options import parse_assignments
from penstock.cli.style import StyledCommand

if TYPE_CHECKING:
    from penstock.config.node import NodeSettings

LIFELINE_GRACE_S = 10.0


@click.command(cls=StyledCommand)
@click.option("-c", "--config", type=click.Path(dir_okay=False), required=True, help="Kafka's server.properties.")
@click.option(
    "--override", "overrides", multiple=True, metavar="NAME=VALUE", help="A setting that overrides the file's."
)
@log_options
@click.option("--ready-fd", type=click.IntRange(0), hidden=True)
@click.option("--lifeline-fd", type=click.IntRange(0), hidden=True)
def command(
    config: str,
    overrides: tuple[str, ...],
    log_level: str,
    log_format: str,
    ready_fd: int | None,
    lifeline_fd: int | None,
) -> None:
    """Run one node from a properties file, until SIGTERM or SIGINT.

    The file uses Kafka's property names; a Kafka server.properties works.
    """
    settings = load_settings(config, parse_assignments(overrides, "--override"))

    from penstock.node import Node, serve

    nodes: list[Node] = []

    def writer() -> dict[str, Any]:
        cluster_id = nodes[0].cluster_id if nodes else ""
        return {"node_id": settings.node_id, **({"cluster_id": cluster_id} if cluster_id else {})}

    log_to_stderr(log_level, log_format, writer)
    if lifeline_fd is not None:
        threading.Thread(target=_stop_with_parent, args=(lifeline_fd,), name="lifeline", daemon=True).start()

    def ready(facts: dict[str, object]) -> None:
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as pipe:
                pipe.write(json.dumps(facts) + "\n")

    sys.exit(serve(settings, ready=ready, made=nodes.append))


def load_settings(config: str, overrides: dict[str, str]) -> NodeSettings:
    """The settings of a file with overrides. Warnings go to stderr, errors into one CommandFailure."""
    from penstock.config.load import load_node_settings
    from penstock.config.properties import ConfigError

    try:
        settings, warnings = _load_with(config, overrides) if overrides else load_node_settings(config)
    except OSError as error:
        raise CommandFailure(
            f"cannot read the settings in {config}",
            error.strerror or str(error),
            "name a properties file with --config",
        ) from None
    except ConfigError as error:
        lines = "".join(f"\n    - {finding.text}" for finding in error.findings)
        raise CommandFailure(f"the settings are not valid:{lines}") from None
    for warning in warnings:
        click.echo(click.style("warning: ", fg="yellow") + warning, err=True)
    return settings


def _load_with(config: str, overrides: dict[str, str]) -> tuple[NodeSettings, list[str]]:
    from penstock.config.broker import examine
    from penstock.config.load import read_properties
    from penstock.config.properties import ConfigError, Finding

    path = Path(config)
    entries = read_properties(path.read_text("utf-8"))
    places = {entry.name: f"{path.name}:{entry.line}" for entry in entries} | dict.fromkeys(overrides, "--override")
    examination = examine({**{entry.name: entry.value for entry in entries}, **overrides})

    def located(finding: Finding) -> Finding:
        return Finding(finding.name, f"{places.get(finding.name, path.name)}: {finding.text}")

    if examination.settings is None:
        raise ConfigError([located(finding) for finding in examination.errors])
    return examination.settings, [located(finding).text for finding in examination.warnings]


def _stop_with_parent(lifeline: int) -> None:
    """Wait for the other end of the pipe to close, which happens when the parent process ends."""
    while os.read(lifeline, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIFELINE_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
