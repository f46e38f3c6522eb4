"""A cluster of three that faults share, and the figures that they measure.

A test that breaks the cluster leaves it broken: it is healed, or replaced where a test failed, before the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator

import pytest

from support.chaos_cluster import ChaosCluster
from support.tools import want

FIGURES: list[str] = []
FAILED = pytest.StashKey[bool]()
IS_LONG = os.environ.get("PENSTOCK_CHAOS") == "long"


class Shared:
    """The cluster that is alive at the moment, if any."""

    def __init__(self) -> None:
        self.cluster: ChaosCluster | None = None

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
            self.cluster = None


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def chaos(shared_cluster: Shared, request: pytest.FixtureRequest) -> Iterator[ChaosCluster]:
    """Three nodes in good health."""
    if shared_cluster.cluster is None:
        shared_cluster.cluster = ChaosCluster().__enter__()
    yield shared_cluster.cluster
    if request.node.stash.get(FAILED, False):
        shared_cluster.close()
        return
    try:
        shared_cluster.cluster.heal()
    except BaseException:
        shared_cluster.close()
        raise


@pytest.fixture
def is_long() -> bool:
    """Whether faults last as long as promised, and come as often: PENSTOCK_CHAOS=long."""
    return IS_LONG


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what belongs to long runs only."""
    skip = pytest.mark.skip(reason=want("time", "run `make chaos`, or set PENSTOCK_CHAOS=long"))
    for item in items:
        if not IS_LONG and item.get_closest_marker("long_chaos") is not None:
            item.add_marker(skip)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long_chaos: only in long runs, PENSTOCK_CHAOS=long")


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Notes a line that is shown at the end of the run."""
    return FIGURES.append


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.CallInfo[None], None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
        cluster = getattr(item, "funcargs", {}).get("chaos")
        if isinstance(cluster, ChaosCluster):
            report.sections.append(("what the nodes logged last", cluster.log_tails()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for line in FIGURES:
            terminalreporter.write_line(line)
