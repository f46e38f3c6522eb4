"""Programs that tests and the bench borrow from the machine, and how to say that one is missing.

A test that cannot run names what it wants: `for want of kcat: …how to get it…`. The end of a test run groups the
skipped tests by these sentences, so its reader knows what to install.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS_DIRECTORY = REPOSITORY / ".tools"
INSTALL_TIMEOUT_SECONDS = 300


def want(thing: str, remedy: str) -> str:
    """The reason why a test is skipped; the run's summary groups by it."""
    return f"for want of {thing}: {remedy}"


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the named lock across processes, so that two test runs do not fetch the same tool at once."""
    TOOLS_DIRECTORY.mkdir(exist_ok=True)
    with open(TOOLS_DIRECTORY / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def apt_install(*packages: str) -> str | None:
    """Install Debian packages without starting their services; None when done, else why it could not be done."""
    if not shutil.which("apt-get"):
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return f"only root may run: apt-get install {' '.join(packages)}"
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with exclusive("apt"):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"apt-get install took longer than {INSTALL_TIMEOUT_SECONDS} s"
    if done.returncode != 0:
        return f"apt-get install failed: {done.stderr.strip().splitlines()[-1:]}"
    return None


@functools.cache
def find_kcat() -> Path | None:
    """kcat's path: from PATH, or installed from Debian's packages where this process may do that; else None."""
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None and apt_install("kcat") is None:
        found = shutil.which("kcat") or shutil.which("kafkacat")
    return Path(found) if found else None


@functools.cache
def find_prometheus() -> Path | None:
    """Prometheus' path, with promtool beside it: from PATH, or installed from Debian's packages; else None."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        apt_install("prometheus")
    found = shutil.which("prometheus")
    return Path(found) if found and shutil.which("promtool") else None


def prometheus_missing() -> str | None:
    """None when Prometheus can be run, else the reason for the skip."""
    return None if find_prometheus() else want("Prometheus", "install the package prometheus (Debian, Ubuntu)")


@functools.cache
def nginx_missing() -> str | None:
    """None when nginx can be run, else the reason for the skip."""
    if shutil.which("nginx") is None:
        apt_install("nginx-light")
    return None if shutil.which("nginx") else want("nginx", "install the package nginx-light (Debian, Ubuntu)")


def kcat_missing() -> str | None:
    """None when kcat can be run, else the reason for the skip."""
    return None if find_kcat() else want("kcat", "install the package kcat (Debian, Ubuntu, Homebrew)")
