"""`penstock version`."""

from __future__ import annotations

import platform

import click

from penstock.cli.options import output_option
from penstock.cli.render import print_facts, print_json
from penstock.cli.style import StyledCommand
from penstock.model.version import __version__


@click.command(cls=StyledCommand)
@output_option
def command(as_json: bool) -> None:
    """Print the versions of Penstock and of its parts."""
    from importlib import metadata, util

    versions = {"penstock": __version__, "python": platform.python_version()}
    for package in ("confluent-kafka", "uvloop", "crc32c", "lz4", "zstandard", "cramjam"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "missing"
    compiled = util.find_spec("penstock.wire._kernel") is not None
    versions["record kernel"] = "compiled" if compiled else "pure Python (slow twin)"
    if as_json:
        print_json(versions)
    else:
        print_facts(versions.items())
