"""Names the tests that failed beside others and pass alone: `make test` loads this as a plugin in CI."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that the second run passed."""
    passed = [report.nodeid for report in terminalreporter.getreports("passed")]
    if passed:
        terminalreporter.section("failed beside other tests, passed alone: belongs in docs/flaky.md, with its cause")
        for nodeid in passed:
            terminalreporter.line(nodeid)
