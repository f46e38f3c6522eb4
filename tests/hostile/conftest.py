"""A broker with short deadlines for peers that misbehave, shared by the tests of one module, and an honest client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hostile_settings import SETTINGS

from penstock.testing import Cluster
from support.wire_client import WireClient, batch_of, records_in


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as cluster:
        yield cluster
        log = cluster.logs()
        assert "Traceback" not in log, log[-4000:]
        assert "this is a bug" not in log, log[-4000:]


@pytest.fixture
def broker(shared_broker: Cluster) -> Iterator[Cluster]:
    """The module's broker; afterwards it must still be the same process and serve a neighbour."""
    pid = shared_broker.pid
    yield shared_broker
    assert shared_broker.pid == pid, shared_broker.logs()[-4000:]
    topic = shared_broker.create_topic()
    with WireClient(shared_broker.bootstrap_servers) as neighbour:
        assert neighbour.produce(topic, batch_of([b"still here"])).error_code == 0
        assert [record.value for record in records_in(neighbour.fetch(topic, 0).records)] == [b"still here"]


@pytest.fixture
def client(broker: Cluster) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as connected:
        yield connected
