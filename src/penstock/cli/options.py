"""The options that commands share. They may be given before or after the command's name; the later one wins."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from penstock.cli.failures import CommandFailure

JAVA_ONLY_PREFIX = "sasl.oauthbearer.client.credentials."
JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.type")


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
    """Add -b, -X and --command-config; the command receives them as `connection`."""

    @click.option("-b", "--bootstrap", metavar="HOST:PORT,…", help="The bootstrap servers of the cluster.")
    @click.option("-X", "properties", multiple=True, metavar="NAME=VALUE", help="A librdkafka property.")
    @click.option(
        "--command-config",
        type=click.Path(dir_okay=False),
        envvar="PENSTOCK_COMMAND_CONFIG",
        metavar="FILE",
        help="Properties of a client, librdkafka's or Java's; -b and -X win over them.",
    )
    @functools.wraps(function)
    def command(
        *args: Any, bootstrap: str | None, properties: tuple[str, ...], command_config: str | None, **kwargs: Any
    ) -> None:
        shared = shared_options()
        words = read_client_file(command_config) if command_config else {}
        words |= parse_assignments((*shared.properties, *properties), "-X")
        address = bootstrap or words.pop("bootstrap.servers", None) or shared.bootstrap
        function(*args, connection=Connection(address, words), **kwargs)

    return command


def read_properties_file(path: str, advice: str) -> dict[str, str]:
    """The properties in a file. Raises CommandFailure; `advice` is how to name another one."""
    from penstock.config.load import read_properties
    from penstock.config.properties import ConfigError

    try:
        with open(path, encoding="utf-8") as file:
            return {entry.name: entry.value for entry in read_properties(file.read())}
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8"
        raise CommandFailure(f"cannot read {path}", why, advice) from None
    except (ValueError, ConfigError) as error:
        raise CommandFailure(f"the properties in {path} cannot be used", str(error)) from None


def read_client_file(path: str) -> dict[str, str]:
    """A client's properties in librdkafka's words, whichever the file has. Raises CommandFailure."""
    from penstock.client.settings import librdkafka_properties, read_settings

    found = read_properties_file(path, "name a client's properties with --command-config")
    if not any(name in JAVA_ONLY or name.startswith(JAVA_ONLY_PREFIX) for name in found):
        return found
    try:
        # Where the brokers are may come from elsewhere.
        words = librdkafka_properties(read_settings({"bootstrap.servers": "localhost:9092", **found}))
    except ValueError as error:
        raise CommandFailure(f"the properties in {path} cannot be used", str(error)) from None
    return words if "bootstrap.servers" in found else {k: v for k, v in words.items() if k != "bootstrap.servers"}


def output_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add -o; the command receives `as_json`."""

    @click.option("-o", "--output", type=click.Choice(["table", "json"]), help="For humans (default) or programs.")
    @functools.wraps(function)
    def command(*args: object, output: str | None, **kwargs: Any) -> None:
        function(*args, as_json=(output or shared_options().output) == "json", **kwargs)

    return command


def query_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add both: for commands that query a cluster and print what it returns."""
    return connection_options(output_option(function))


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
