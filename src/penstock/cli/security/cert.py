"""`penstock security cert …`: an authority of one's own, certificates of it, and what certificates say."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import output_option
from penstock.cli.render import print_facts, print_json
from penstock.cli.style import StyledGroup


@click.group(cls=StyledGroup)
def command() -> None:
    """Make an authority and certificates of it, and look at certificates.

    For clusters without an authority of their own; where there is one, use its certificates instead.
    """


@command.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", default="Penstock", show_default=True, help="What the authority is called in certificates.")
@click.option("--force", is_flag=True, help="Replace the one that is there.")
def authority(directory: Path, name: str, force: bool) -> None:
    """Make an authority below DIRECTORY: ca.pem for all nodes and clients, and ca.key to keep secret."""
    import datetime

    from penstock.cli.security.cert_files import AUTHORITY, AUTHORITY_KEY, create_authority

    create_authority(directory, name, datetime.datetime.now(datetime.UTC), force=force)
    click.echo(f"{directory / AUTHORITY}: what nodes and clients trust (ssl.truststore.location, ssl.ca.location)")
    click.echo(f"{directory / AUTHORITY_KEY}: its key; with it anyone can pass for any node, so keep it off the nodes")
    click.echo(f"next: penstock security cert issue {directory} NAME --host HOST")


@command.command("issue")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A name or address of a node. May be repeated.")
@click.option("--days", type=click.FloatRange(0, min_open=True), help="How long it is good.  [default: 397]")
@click.option("--force", is_flag=True, help="Replace the one that is there.")
def issue_command(directory: Path, name: str, hosts: tuple[str, ...], days: float | None, force: bool) -> None:
    """Issue a certificate to NAME by the authority below DIRECTORY, as NAME.pem with its key.

    A node needs a --host for every name and address that it advertises. A client needs none: it is known by NAME.
    """
    import datetime

    from penstock.cli.security.cert_files import issue_certificate
    from penstock.runtime.security.certificates import CERTIFICATE_DAYS

    now = datetime.datetime.now(datetime.UTC)
    path = issue_certificate(directory, name, hosts, days or CERTIFICATE_DAYS, now, force=force)
    who = f"for {', '.join(hosts)}" if hosts else "for a client: it names no host, so a node cannot use it"
    click.echo(f"{path}: key and certificate {who}, good for {days or CERTIFICATE_DAYS:g} days")


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def show(file: Path, as_json: bool) -> None:
    """Show the certificates in FILE (PEM). Exit code 1 when one of them is not valid now."""
    import datetime

    from penstock.cli.security.cert_files import state_of
    from penstock.runtime.security.certificates import read_certificates

    try:
        text = file.read_bytes()
        found = read_certificates(text)
    except OSError as error:
        raise CommandFailure(f"cannot read {file}", error.strerror or str(error)) from None
    except ValueError:
        raise CommandFailure(
            f"{file} has no certificate that can be read",
            "it is not PEM, or damaged",
            f"of PKCS12: openssl pkcs12 -in {file} -nokeys -out certificates.pem",
        ) from None
    now = datetime.datetime.now(datetime.UTC)
    rows = [
        {
            "subject": one.subject,
            "issuer": one.issuer,
            "hosts": list(one.hosts),
            "not_before": one.not_before.isoformat(),
            "not_after": one.not_after.isoformat(),
            "state": state_of(one, now),
            "authority": one.is_authority,
            "sha256": one.fingerprint,
        }
        for one in found
    ]
    if as_json:
        print_json({"certificates": rows, "has_key": b"PRIVATE KEY-----" in text})
    else:
        for number, row in enumerate(rows):
            click.echo("" if number else f"{file}" + (" (with a private key)" if b"PRIVATE KEY-----" in text else ""))
            hosts = ", ".join(map(str, row["hosts"])) if isinstance(row["hosts"], list) else ""
            shown = {**row, "hosts": hosts or "none", "authority": "yes" if row["authority"] else "no"}
            print_facts([(name.replace("_", " "), value) for name, value in shown.items()])
    if any(not one.not_before <= now < one.not_after for one in found):
        raise click.exceptions.Exit(1)
