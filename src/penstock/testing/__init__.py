"""A real broker for your tests: a process on a free port that is removed when the test is done.

    from penstock.testing import Cluster

    with Cluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

With pytest, the fixtures `penstock_cluster` and `penstock_topic` are there as soon as Penstock is installed.
"""

from __future__ import annotations

from penstock.local.process import BrokerFailed
from penstock.testing.cluster import Cluster

__all__ = ["BrokerFailed", "Cluster"]
