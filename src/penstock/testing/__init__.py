"""A real broker for your tests: a process on a free port, whose data is removed when the test is done.

    from penstock.testing import Cluster

    with Cluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

`AppHarness` runs a `penstock.App` in a test, without a broker or with one, and with time in the test's hands.

With pytest, the fixtures `penstock_cluster` and `penstock_topic` are there as soon as Penstock is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.local.process import BrokerFailed
from penstock.testing.cluster import Cluster

if TYPE_CHECKING:
    from penstock.testing.harness import AppHarness

__all__ = ["AppHarness", "BrokerFailed", "Cluster"]


def __getattr__(name: str) -> Any:
    if name == "AppHarness":
        # Loads applications and librdkafka, which tests with a cluster alone don't need.
        from penstock.testing.harness import AppHarness

        return AppHarness
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
