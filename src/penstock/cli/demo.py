"""`penstock demo`: an error that names the place of the demo, which is no part of the package."""

from __future__ import annotations

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.style import StyledCommand


@click.command(cls=StyledCommand, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Learn where the demo is: a shop's evening on three nodes and Spark."""
    del words
    raise CommandFailure(
        "the demo is not part of the package", "it is an example in Penstock's repository", "make demo, in a clone"
    )
