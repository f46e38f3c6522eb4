"""The stores of tests know nothing of each other. Here, where none is open beside them: moto's share their process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.object_stores import STORES, Store, available
from support.tier_cluster import tier_missing

MISSING = tier_missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
    # It may be fetched first.
    pytest.mark.timeout(900),
]


async def leave_something(running: Store) -> list[str]:
    """What is there, before something is left behind."""
    opened = running.open()
    found = [listed.path async for listed in opened.list("")]
    await opened.put("left-behind", b"by the first")
    return found


@pytest.mark.parametrize("name", STORES)
def test_a_store_starts_empty(name: str, tmp_path: Path) -> None:
    kind = available(name)
    for life in ("first", "second"):
        directory = tmp_path / life
        directory.mkdir()
        with kind.start(directory) as running:
            assert asyncio.run(leave_something(running)) == []
