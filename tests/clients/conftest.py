"""Fixtures for tests that talk to a running broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import Cluster
from support.wire_client import WireClient


@pytest.fixture
def servers(penstock_cluster: Cluster) -> str:
    """The address of the session's broker."""
    return penstock_cluster.bootstrap_servers


@pytest.fixture
def wire(servers: str) -> Iterator[WireClient]:
    """A connection to the session's broker that sends exactly what a test wants."""
    with WireClient(servers) as client:
        yield client
