"""The pytest plugin: a broker for a whole test session, and a fresh topic for each test.

Every pytest run on a machine with Penstock installed loads this module, so it imports nothing beyond pytest until
a test requests a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster


@pytest.fixture(scope="session")
def penstock_cluster() -> Iterator[Cluster]:
    """A running broker shared by the tests of this session; its data is removed at the end."""
    from penstock.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def penstock_topic(penstock_cluster: Cluster) -> str:
    """The name of a topic with one partition, created for this test alone."""
    return penstock_cluster.create_topic()
