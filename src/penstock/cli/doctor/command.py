"""`penstock doctor`: the usual mistakes, each with what it is, why it matters and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from penstock.cli.options import Connection, query_options
from penstock.cli.render import plural, print_json
from penstock.cli.style import StyledCommand

OK = "ok"
NOTE = "note"
WRONG = "wrong"

MARKS = {OK: ("✓", "green"), NOTE: ("·", "yellow"), WRONG: ("✗", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `why` and `advice` are there unless all is well."""

    level: str
    what: str
    why: str = ""
    advice: str = ""


@click.command(cls=StyledCommand)
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="Also check this server.properties.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="The data directory to look at. Default: `penstock up`'s."
)
@click.option("--gateway", "gateways", metavar="URL", multiple=True, help="Also look at this gateway. Repeat for more.")
@click.option("--offline", is_flag=True, help="Look at this machine only, not at a cluster.")
@query_options
def command(
    config: str | None,
    data: Path | None,
    gateways: tuple[str, ...],
    offline: bool,
    connection: Connection,
    as_json: bool,
) -> None:
    """Find the usual mistakes and say how to mend them. Exit code 1 means that something is wrong."""
    from penstock.cli.doctor import gateway as checks_gateway
    from penstock.cli.doctor import host as checks_host
    from penstock.cli.doctor import network as checks_network
    from penstock.cli.up.data import default_data_dir

    findings: list[Finding] = []
    directories = [data] if data is not None else []
    if config is not None:
        found, named, ports = checks_host.check_config(config)
        findings += found
        directories += named
        findings += [checks_host.check_port(host, port) for host, port in ports]
    for directory in directories or [default_data_dir()]:
        findings += checks_host.check_directory(directory)
    findings += checks_host.check_machine()
    if not offline:
        findings += checks_network.check_cluster(connection)
    for url in gateways:
        findings += checks_gateway.check_gateway(url)
    wrong = sum(finding.level == WRONG for finding in findings)
    if as_json:
        print_json({"wrong": wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _show(finding)
        click.echo(f"\n{plural(wrong, 'thing')} to mend" if wrong else "\nnothing wrong found")
    if wrong:
        click.get_current_context().exit(1)


def _show(finding: Finding) -> None:
    mark, colour = MARKS[finding.level]
    click.echo(f"{click.style(mark, fg=colour, bold=True)} {finding.what}")
    if finding.why:
        click.echo(f"    why: {finding.why}")
    if finding.advice:
        click.echo(f"    try: {finding.advice}")
