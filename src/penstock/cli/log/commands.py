"""`penstock log …`: inspect the files of a data directory, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import output_option
from penstock.cli.render import plural
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from penstock.cli.log.files import Document

# Kafka's values for "not set", which tables omit and JSON includes.
UNSET = (None, -1)


@click.group(cls=StyledGroup)
def command() -> None:
    """Inspect segment, index and checkpoint files."""


@command.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="PATH…")
@click.option("-r", "--records", is_flag=True, help="Show the records of each batch.")
@click.option("--verify", is_flag=True, help="Check checksums, counts, order, and indexes against their segment.")
@output_option
def dump(paths: tuple[Path, ...], records: bool, verify: bool, as_json: bool) -> None:
    """Print segments, indexes, snapshots and checkpoints; of a directory, all its files.

    With -o json there is one JSON object a line. Exit code 1 means that something is damaged.
    """
    import json

    from penstock.cli.log.files import UnknownFile, read_file

    problems = 0
    for path in _files(paths):
        try:
            documents = read_file(path, records, verify)
            if not as_json:
                click.echo(click.style(f"== {path}", bold=True))
            for document in documents:
                problems += "problem" in document
                if as_json:
                    click.echo(json.dumps({"file": str(path), **document}, ensure_ascii=False))
                else:
                    _show(document)
        except UnknownFile:
            if path in paths:
                raise CommandFailure(
                    f"{path} is not a file that can be shown",
                    "known names: .log .index .timeindex .txnindex .snapshot .checkpoint, checkpoints and metadata",
                ) from None
        except BrokenPipeError:
            raise
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailure(f"cannot read {path}", str(error)) from None
    if problems:
        raise CommandFailure(f"{plural(problems, 'problem')} found", "see the lines marked with !!")
    if verify and not as_json:
        click.echo(click.style("no damage found", fg="green"))


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(child for child in path.iterdir() if child.is_file())
        else:
            yield path


def _show(document: Document) -> None:
    shown = dict(document)
    kind = shown.pop("kind")
    problem = shown.pop("problem", None)
    records = shown.pop("records", [])
    if kind == "line":
        click.echo(f"  {shown['text']}")
        return
    facts = " ".join(f"{name}={value}" for name, value in shown.items() if value is not False and value not in UNSET)
    click.echo(f"  {click.style(kind, fg='cyan')} {facts}")
    if problem:
        click.echo(click.style(f"  !! {problem}", fg="red", bold=True))
    for record in records:
        problem = record.pop("problem", None)
        click.echo("    " + " ".join(f"{name}={value!r}" for name, value in record.items()))
        if problem:
            click.echo(click.style(f"    !! {problem}", fg="red", bold=True))
