"""A PostgreSQL of a test's own: on a free port, with its data in a directory that goes away."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.local.layout import free_ports

from ..tools import apt_install, want

INSTALLED = Path("/usr/lib/postgresql")
USER = "postgres"
START_SECONDS = 60


@functools.cache
def find_postgres() -> Path | None:
    """The directory of initdb and pg_ctl: found, or installed from Debian's packages where that may be done."""
    return _binaries() or (_binaries() if apt_install("postgresql") is None else None)


def postgres_missing() -> str | None:
    """None when a server can be started here, else the reason for the skip."""
    return None if find_postgres() else want("PostgreSQL", "install the package postgresql (Debian, Ubuntu, Homebrew)")


class Postgres:
    """A running server. `url` is for JDBC; anybody who can reach it is its superuser."""

    def __init__(self, binaries: Path, directory: Path, port: int) -> None:
        self._binaries = binaries
        self._directory = directory
        self._port = port

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self._port}/postgres"

    def sql(self, statement: str) -> list[tuple[str, ...]]:
        """Run SQL with psql and return its rows as text."""
        words = ["-h", "127.0.0.1", "-p", str(self._port), "-U", USER, "-d", "postgres", "-tA", "-F", "\t"]
        psql = shutil.which("psql") or str(self._binaries / "psql")
        done = subprocess.run(
            [psql, *words, "-v", "ON_ERROR_STOP=1", "-c", statement], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return [tuple(line.split("\t")) for line in done.stdout.splitlines() if line]

    def start(self) -> None:
        data = self._directory / "data"
        # A server refuses to run as root; one that is only for a test needs neither a password nor the disk's word.
        self._run("initdb", "-D", str(data), "-U", USER, "-A", "trust", "--no-sync")
        options = f"-p {self._port} -k {self._directory} -h 127.0.0.1 -c fsync=off"
        log = str(self._directory / "log")
        self._run("pg_ctl", "-D", str(data), "-o", options, "-l", log, "-w", "-t", str(START_SECONDS), "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "stop")

    def _run(self, name: str, *words: str) -> None:
        account = {"user": USER, "group": pwd.getpwnam(USER).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        with (self._directory / f"{name}.out").open("wb") as output:
            # The server inherits what pg_ctl writes to: a pipe would never end.
            done = subprocess.run(
                [str(self._binaries / name), *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=2 * START_SECONDS,
                cwd=self._directory,
                **account,  # type: ignore[arg-type]
            )
        assert done.returncode == 0, (self._directory / f"{name}.out").read_text()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server for as long as the block lasts."""
    binaries = find_postgres()
    assert binaries is not None
    # Not below pytest's directory, which is for its owner alone, while the server runs as another user.
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as name:
        directory = Path(name)
        if os.geteuid() == 0:
            shutil.chown(directory, USER)
        server = Postgres(binaries, directory, free_ports(1)[0])
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _binaries() -> Path | None:
    found = shutil.which("pg_ctl")
    newest = sorted(INSTALLED.glob("*/bin"), key=lambda each: int(each.parent.name)) if INSTALLED.is_dir() else []
    places = [*reversed(newest), *([Path(found).parent] if found else [])]
    return next((place for place in places if (place / "initdb").exists()), None)
