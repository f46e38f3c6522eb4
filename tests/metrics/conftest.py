"""Fixtures for tests of metrics and health: three nodes and a gateway that do a bit of everything."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from watched_cluster import TIMEOUT_S, Watched, consume, produce, produce_in_transaction

from penstock.local.layout import free_ports
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess


@pytest.fixture(scope="session")
def watched() -> Iterator[Watched]:
    """Three nodes and a gateway, with some traffic behind them."""
    ports = free_ports(3)
    nodes = {number: f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}
    settings = {node_id: {"penstock.metrics.listener": address} for node_id, address in nodes.items()}
    replicated = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
    with Cluster(replicated, nodes=3, node_settings=settings, start_timeout_s=90) as cluster:
        topic = cluster.create_topic(partitions=3)
        produce(cluster, topic)
        produce_in_transaction(cluster, topic)
        consume(cluster, topic, "readers")
        with GatewayProcess(cluster.bootstrap_servers) as gateway:
            httpx.get(f"{gateway.rest}/topics", timeout=TIMEOUT_S).raise_for_status()
            httpx.get(f"{gateway.registry}/subjects", timeout=TIMEOUT_S).raise_for_status()
            yield Watched(cluster, nodes, gateway, topic)
