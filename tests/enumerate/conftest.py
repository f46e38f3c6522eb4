"""Brokers whose disks fail have much to log; none of it is read here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

SILENCED = ("penstock", "sim", "asyncio")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in SILENCED}
    for name in SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
