"""A secured node for the tests of this room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from support.identity_provider import IdentityProvider
from support.secure_cluster import ADMIN, SecureCluster


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """One node that everybody has to sign in to."""
    settings = {
        "delegation.token.secret.key": "the cluster's own",
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
        "allow.everyone.if.no.acl.found": "true",
        # For those who come by the thousand.
        "socket.listen.backlog.size": "1000",
    }
    with SecureCluster(tmp_path_factory.mktemp("secured"), settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    """An identity provider that publishes its keys by HTTP."""
    found = IdentityProvider()
    yield found
    found.close()


@pytest.fixture
def run_penstock() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of `penstock` and returns what came of it."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run
