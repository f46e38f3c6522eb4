"""Fixtures of the storage tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_support import LogMaker


@pytest.fixture
def logs(tmp_path: Path) -> LogMaker:
    """A directory for one log, with small segments and dense indexes."""
    return LogMaker(tmp_path)
