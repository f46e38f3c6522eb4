"""The options that commands share. They may be given before or after the command's name; the later one wins."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from penstock.cli.failures import CommandFailure


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The options given before the command's name."""

    bootstrap: str
    properties: tuple[str, ...]
    output: str


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the cluster."""

    bootstrap: str
    properties: dict[str, str]


def parse_assignments(assignments: tuple[str, ...], option: str) -> dict[str, str]:
    """Parse `name=value` arguments; one without `=` is a usage error that names the option."""
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE, not {assignment!r}.")
        pairs[name.strip()] = value
    return pairs


def connection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add -b and -X; the command receives them as `connection`."""

    @click.option("-b", "--bootstrap", metavar="HOST:PORT,…", help="The bootstrap servers of the cluster.")
    @click.option("-X", "properties", multiple=True, metavar="NAME=VALUE", help="A librdkafka property.")
    @functools.wraps(function)
    def command(*args: Any, bootstrap: str | None, properties: tuple[str, ...], **kwargs: Any) -> None:
        shared = shared_options()
        words = parse_assignments((*shared.properties, *properties), "-X")
        address = bootstrap or words.pop("bootstrap.servers", None) or shared.bootstrap
        function(*args, connection=Connection(address, words), **kwargs)

    return command


def output_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add -o; the command receives `as_json`."""

    @click.option("-o", "--output", type=click.Choice(["table", "json"]), help="For humans (default) or programs.")
    @functools.wraps(function)
    def command(*args: Any, output: str | None, **kwargs: Any) -> None:
        function(*args, as_json=(output or shared_options().output) == "json", **kwargs)

    return command


def shared_options() -> SharedOptions:
    """The options before the command's name, also if a command is called without the main group."""
    shared = click.get_current_context().find_object(SharedOptions)
    return shared if shared is not None else SharedOptions("localhost:9092", (), "table")


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed; without a terminal --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailure(question + " Not done.", "there is no terminal to ask on", "add --yes if you mean it")
    click.confirm(question, abort=True)
