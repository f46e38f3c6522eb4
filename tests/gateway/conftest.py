"""Fixtures for tests of the gateway: one that all tests share, clients for it, fresh names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess


@pytest.fixture(scope="session")
def gateway(penstock_cluster: Cluster) -> Iterator[GatewayProcess]:
    """A gateway next to the session's broker."""
    with GatewayProcess(penstock_cluster.bootstrap_servers) as process:
        yield process


@pytest.fixture
def registry(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """A client of the schema registry."""
    with httpx.Client(base_url=gateway.registry, timeout=60) as client:
        yield client


@pytest.fixture
def rest(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """A client of the REST port."""
    with httpx.Client(base_url=gateway.rest, timeout=60) as client:
        yield client


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"subject-{uuid.uuid4().hex[:10]}"
