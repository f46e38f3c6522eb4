"""What every test run shares: the way to `support` and `bench`, skips for missing tools, a list of what was skipped."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from support.kafka_tools import java_missing
from support.tools import kcat_missing, prometheus_missing

MISSING_BY_MARKER: dict[str, Callable[[], str | None]] = {
    "java": java_missing,
    "kcat": kcat_missing,
    "prometheus": prometheus_missing,
}
NAMES_SHOWN_MAX = 5
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 * 2**30
# Everything in these rooms takes long.
SLOW_ROOMS = ("sim", "chaos", "fuzz", "enumerate")
LONG_FIRST = ("sim", "enumerate", "chaos", "console", "clients", "gateway", "metrics", "fuzz", "hostile")
ROOMS = {name: place for place, name in enumerate(LONG_FIRST)}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kcat: needs kcat")
    config.addinivalue_line("markers", "prometheus: needs Prometheus and promtool")
    # How long an example takes means nothing on a busy machine, and the first one pays for Hypothesis's tables.
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
    keep_files_in_memory()


def keep_files_in_memory() -> None:
    """Where there is room, have tests write to memory: brokers that sync side by side hold one disk up for seconds."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        directory = MEMORY / f"penstock-tests-{os.getuid()}"
        directory.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is slow for where it lies, before anybody chooses by markers."""
    if item.path.relative_to(Path(__file__).parent).parts[0] in SLOW_ROOMS:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, so that no worker is left alone with them at the end; otherwise the order is by randomness."""
    rooms = {item: item.path.relative_to(Path(__file__).parent).parts[0] for item in items}
    items.sort(key=lambda item: ROOMS.get(rooms[item], len(ROOMS)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch what the collected tests need now, so that no test's time limit pays for a download."""
    for marker, missing in MISSING_BY_MARKER.items():
        if any(item.get_closest_marker(marker) is not None for item in session.items):
            missing()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `java`, `kcat` or `prometheus` run only where that tool can be had."""
    for marker, missing in MISSING_BY_MARKER.items():
        if item.get_closest_marker(marker) is not None:
            reason = missing()
            if reason is not None:
                pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what this machine could not run, and how to enable it."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        names_by_reason[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if not names_by_reason:
        return
    terminalreporter.section("not run on this machine")
    for reason, names in sorted(names_by_reason.items()):
        terminalreporter.write_line(f"Skipped {reason}")
        for name in names[:NAMES_SHOWN_MAX]:
            terminalreporter.write_line(f"    {name}")
        if len(names) > NAMES_SHOWN_MAX:
            terminalreporter.write_line(f"    and {len(names) - NAMES_SHOWN_MAX} more")
