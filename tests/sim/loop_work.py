"""How much a node does in one turn of its event loop, which virtual time does not show.

Walking a log from batch to batch is what takes long: so many headers in one turn hold up every client of the broker.
"""

from __future__ import annotations

from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.storage import scan
from sim.scheduler import SimLoop

# About two milliseconds' worth.
HEADERS_PER_TURN_MAX = 128


@contextmanager
def counted_headers() -> Iterator[None]:
    """Have it be a bug to read more headers of batches in one turn of a loop; workers may read as many as they like."""
    right = scan.header_in
    turn: tuple[str, int] | None = None
    count = 0

    def header_in(*arguments: Any) -> Any:
        nonlocal turn, count
        loop = events._get_running_loop()
        if isinstance(loop, SimLoop) and not loop.is_in_worker:
            now = loop.name, loop.scheduler.steps
            turn, count = now, count + 1 if now == turn else 1
            if count == HEADERS_PER_TURN_MAX + 1:
                loop.scheduler.errors.append(f"{loop.name} reads more than {HEADERS_PER_TURN_MAX} headers in one turn")
        return right(*arguments)

    with patch.object(scan, "header_in", header_in):
        yield
