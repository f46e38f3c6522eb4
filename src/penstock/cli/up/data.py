"""Where `penstock up` keeps its data, and the lock that keeps other processes off them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.failures import CommandFailure

META_PROPERTIES = "meta.properties"
# Where a secured cluster has its authority and its passwords.
SECURITY = "security"


def default_data_dir(nodes: int = 1, secure: bool = False) -> Path:
    """Where data live that no option names: XDG's place for application data; a cluster has its own below it."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    directory = Path(base) / "penstock"
    if secure:
        directory /= "secured"
    return directory if nodes == 1 else directory / f"cluster-of-{nodes}"


@contextlib.contextmanager
def data_directory(data: str | None, ephemeral: bool, nodes: int, secure: bool = False) -> Iterator[Path]:
    """A directory that is this process's alone until the end; a temporary one is removed then."""
    if ephemeral:
        directory = Path(tempfile.mkdtemp(prefix="penstock-up-"))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return
    directory = Path(data).expanduser().absolute() if data is not None else default_data_dir(nodes, secure)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailure(f"cannot use {directory} for data", str(error), "choose another with --data DIR") from None
    with _locked(directory):
        _check_size(directory, nodes)
        _check_kind(directory, secure)
        yield directory


def _nodes_at(directory: Path) -> int:
    """How many nodes have data there."""
    data = directory / "data"
    numbered = [path for path in data.glob("[0-9]*") if (path / META_PROPERTIES).exists()]
    return 1 if (data / META_PROPERTIES).exists() else len(numbered)


def _check_kind(directory: Path, secure: bool) -> None:
    """A secured cluster is never opened by accident, and an open one has no users to sign in."""
    is_secured = (directory / SECURITY).exists()
    if is_secured and not secure:
        raise CommandFailure(
            f"{directory} holds the data of a secured cluster",
            "without --secure any client could read and change them",
            "add --secure, or give this cluster data of its own: --data DIR or --ephemeral",
        )
    if secure and not is_secured and _nodes_at(directory):
        raise CommandFailure(
            f"{directory} holds the data of a cluster that is not secured",
            "it has no user who could sign in",
            "give the secured cluster data of its own: --data DIR; docs/security.md shows how an open one is closed",
        )


def _check_size(directory: Path, nodes: int) -> None:
    """Data of another number of nodes are left alone: the voters of a quorum do not change by starting others."""
    present = _nodes_at(directory)
    if present not in (0, nodes):
        raise CommandFailure(
            f"{directory} holds the data of a cluster of {present}, and {nodes} are to be started",
            "a quorum knows its members by number; with others it could lose what it has acknowledged",
            f"run it with --nodes {present}, or give the new cluster data of its own: --data DIR or --ephemeral",
        )


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory, so that a second `penstock up` neither shares the data nor rewrites the settings."""
    path = directory / "up.lock"
    try:
        lock = path.open("a+")
    except OSError as error:
        raise CommandFailure(f"cannot write to {directory}", str(error), "choose another with --data DIR") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailure(
                f"another `penstock up` uses the data in {directory}",
                f"its pid is {path.read_text() or 'not known yet'}",
                "use the one that runs, or give this one data of its own: --data DIR or --ephemeral",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
