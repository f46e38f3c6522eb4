"""Searches the segments of one log for damage, off the event loop, a piece at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from penstock.runtime.env import Env
from penstock.storage.damage import SegmentToCheck, check_batches
from penstock.storage.files import CorruptLogError, File
from penstock.storage.log import Log

# The kernel holds the GIL while it sums so much, a tenth of a millisecond.
PIECE_BYTES = 256 * 1024

logger = logging.getLogger("penstock.scrub")

# Called with the size of each piece that was checked; may wait.
Pace = Callable[[int], Awaitable[None]]


async def at_once(_: int) -> None:
    """The pace of a search that a request waits for."""


async def find_damage(env: Env, log: Log, wanted: SegmentToCheck, pace: Pace) -> CorruptLogError | None:
    """The first damage in a segment; None if there is none, or if the segment was changed or removed meanwhile.

    What one read has found counts if a second one finds it too. Raises StorageError.
    """
    position = 0
    try:
        file = await env.run_blocking(partial(env.filesystem.open, wanted.path))
        while position < wanted.size and log.has(wanted):
            before = position
            try:
                position = await env.run_blocking(partial(check_batches, file, position, wanted.size, PIECE_BYTES))
            except CorruptLogError as error:
                if not log.has(wanted):
                    return None
                position = await _read_again(env, file, wanted, error)
            await pace(position - before)
    except FileNotFoundError:
        # It was deleted, or replaced by a compacted one.
        return None
    except CorruptLogError as error:
        return error if log.has(wanted) else None
    return None


async def _read_again(env: Env, file: File, wanted: SegmentToCheck, error: CorruptLogError) -> int:
    position = await env.run_blocking(partial(check_batches, file, error.position, wanted.size, PIECE_BYTES))
    logger.warning("%s; read again it is whole: check the memory of this machine, and its disk", error.message)
    return position
