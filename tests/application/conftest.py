"""A broker for the tests of applications, with the topics of the examples."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock.testing import AppHarness, Cluster
from support.gateway_process import GatewayProcess


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    settings = {"num.partitions": "1", "offsets.topic.num.partitions": "4"}
    # For a test that waits until a lock has expired.
    settings["group.share.min.record.lock.duration.ms"] = "1000"
    # For the examples of ACLs. Every client here is a super user.
    settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings["super.users"] = "User:ANONYMOUS"
    with Cluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def registry_url(broker: Cluster) -> Iterator[str]:
    with GatewayProcess(broker.bootstrap_servers) as gateway:
        yield gateway.registry


@pytest.fixture
def servers(broker: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker's address, which applications also find in their environment."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap_servers)
    return broker.bootstrap_servers


@pytest.fixture
def shop(servers: str) -> str:
    """A broker with the topics that the examples in docstrings use."""
    with penstock.Admin(servers) as admin, penstock.Producer(servers) as producer:
        admin.create_topic("orders", partitions=3, replication_factor=1, exist_ok=True)
        admin.create_topic("shipments", partitions=1, replication_factor=1, exist_ok=True)
        for partition in range(3):
            producer.send("orders", "alice", "1 tea", partition=partition)
        producer.send("shipments", "alice", "1 tea")
    return servers


@pytest.fixture(params=["memory", "broker"])
def opened(request: pytest.FixtureRequest) -> Callable[[penstock.App], AppHarness]:
    """Opens a harness of either kind."""
    if request.param == "memory":
        return AppHarness
    servers = request.getfixturevalue("servers")
    return lambda app: AppHarness(app, servers)


@pytest.fixture
def name() -> str:
    """A name of this test's own, for its topics and groups."""
    return uuid.uuid4().hex[:8]
