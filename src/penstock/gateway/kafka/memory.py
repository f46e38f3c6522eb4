"""Memory use of Kafka clients: small buffers, because there may be hundreds, and freed memory is returned.

A client has its own threads, and glibc gives threads their own arenas, which keep freed memory. A hundred clients that
had read ahead and were closed left almost a gigabyte behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable

# How much a consumer prefetches. librdkafka's default is 64 MB, or 100,000 records, per consumer.
SMALL_BUFFERS = {
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 256 * 1024,
    "fetch.max.bytes": 1024 * 1024,
    # How long the client waits before it checks a full buffer for room again.
    "fetch.queue.backoff.ms": 20,
}
# glibc's number for the option, and how many arenas there may be.
_M_ARENA_MAX = -8
ARENAS_MAX = 2
PERIOD_S = 10.0


def share_arenas() -> None:
    """Make all threads of this process share a few arenas. Call it before threads start; a no-op without glibc."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)


async def trim_memory() -> None:
    """Periodically return freed memory to the system."""
    trim = _glibc("malloc_trim")
    while trim is not None:
        await asyncio.sleep(PERIOD_S)
        # It takes the arenas' locks one by one, for milliseconds.
        await asyncio.to_thread(trim, 0)


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of glibc; None with another C library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
