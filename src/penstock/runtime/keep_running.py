"""Background loops that outlive an error that they do not expect.

A loop that ends is noticed by no client: heartbeats stop, or replicas that caught up are never in sync again. So it
is started again after a pause, which grows while it fails again and again, and every failure is reported to the loop's
exception handler with its traceback. `work` must be able to start over at any point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.core.backoff import pause_after
from penstock.runtime.env import Env

PAUSE_FIRST_MS = 250
PAUSE_MAX_MS = 30_000
# A failure after this time without one is the first again.
CALM_MS = 60_000


def keep_running(env: Env, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
    """Start a loop that is started again when it fails; the task ends when `work` returns, or when it is cancelled."""

    async def run() -> None:
        failures = 0
        while True:
            started_ms = env.monotonic_ms()
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the loop
                now_ms = env.monotonic_ms()
                failures = 1 if now_ms - started_ms >= CALM_MS else failures + 1
                text = f"background task {name} failed ({failures} in a row) and is started again"
                asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})
                await asyncio.sleep(pause_after(failures, PAUSE_FIRST_MS, PAUSE_MAX_MS) / 1000)
            else:
                return

    return env.spawn(run(), name)
