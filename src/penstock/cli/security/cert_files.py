"""Files of a small certificate authority: its own certificate and key, and those that it vouches for.

Whatever holds a private key is readable by its owner only, from the moment that it exists.
"""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.failures import CommandFailure
from penstock.runtime.security.certificates import CertificateFacts, KeyPair, issue, make_authority

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca.key"
SECRET_MODE, PUBLIC_MODE = 0o600, 0o644
SECRET_DIRECTORY_MODE = 0o700
# Long enough before its end that an operator can still replace it.
SOON = datetime.timedelta(days=30)


def state_of(certificate: CertificateFacts, now: datetime.datetime) -> str:
    """How a certificate stands at a time, in words that begin with `expired`, `not valid`, `expires` or `good`."""
    if certificate.not_after <= now:
        return f"expired {_days(now - certificate.not_after)} ago"
    if certificate.not_before > now:
        return f"not valid before {certificate.not_before:%Y-%m-%d %H:%M} UTC"
    left = certificate.not_after - now
    return f"expires in {_days(left)}" if left < SOON else f"good for {_days(left)}"


def _days(span: datetime.timedelta) -> str:
    return f"{span.days} day" + ("" if span.days == 1 else "s") if span.days else f"{span.seconds // 3600} h"


def write_file(path: Path, text: str, mode: int = SECRET_MODE) -> None:
    """Put a file in its place as a whole, so that a concurrent reader finds the old one or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def create_authority(directory: Path, name: str, now: datetime.datetime, *, force: bool = False) -> KeyPair:
    """A new authority below a directory, which is made; raises CommandFailure where there is one already."""
    present = [path for path in (directory / AUTHORITY, directory / AUTHORITY_KEY) if path.exists()]
    if present and not force:
        raise CommandFailure(
            f"{present[0]} is there already",
            "certificates that the old authority vouched for would not be trusted any more",
            "use it with `penstock security cert issue`, choose another directory, or add --force",
        )
    pair = make_authority(name, now)
    try:
        directory.mkdir(mode=SECRET_DIRECTORY_MODE, parents=True, exist_ok=True)
        write_file(directory / AUTHORITY_KEY, pair.key)
        write_file(directory / AUTHORITY, pair.certificate, PUBLIC_MODE)
    except OSError as error:
        raise _cannot_write(directory, error) from None
    return pair


def read_authority(directory: Path) -> KeyPair:
    """The authority below a directory; raises CommandFailure where there is none."""
    try:
        return KeyPair((directory / AUTHORITY_KEY).read_text(), (directory / AUTHORITY).read_text())
    except (OSError, UnicodeDecodeError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else "its files are not PEM"
        raise CommandFailure(
            f"there is no authority in {directory}", why, f"make one: penstock security cert authority {directory}"
        ) from None


def issue_certificate(
    directory: Path,
    name: str,
    hosts: Sequence[str],
    days: float,
    now: datetime.datetime,
    *,
    force: bool = False,
) -> Path:
    """NAME.pem with a key, its certificate and the authority's; raises CommandFailure where there is one already."""
    if not name or "/" in name or name.startswith(".") or f"{name}.pem" == AUTHORITY:
        raise CommandFailure(f"{name!r} cannot be the name of a certificate", "it becomes the name of a file")
    path = directory / f"{name}.pem"
    if path.exists() and not force:
        raise CommandFailure(
            f"{path} is there already",
            "its key may be in use",
            "choose another name; --force replaces it, and nodes that use it take it up within seconds",
        )
    authority = read_authority(directory)
    try:
        pair = issue(authority, name, now, hosts, days)
    except (ValueError, AssertionError) as error:
        why = str(error) or "its key is not one that Penstock makes"
        raise CommandFailure(f"the authority in {directory} cannot issue this certificate", why) from None
    try:
        write_file(path, pair.pem + authority.certificate)
    except OSError as error:
        raise _cannot_write(directory, error) from None
    return path


def _cannot_write(directory: Path, error: OSError) -> CommandFailure:
    return CommandFailure(
        f"cannot write to {directory}", error.strerror or str(error), "choose a directory that you may write to"
    )
