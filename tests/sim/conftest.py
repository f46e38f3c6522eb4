"""Nodes that are killed and cut off log much; it is not read here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sim.world import SILENCED, silence_logs


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in SILENCED}
    silence_logs()
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
