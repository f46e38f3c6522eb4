"""One thread for the blocking calls of one client, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs calls one after the other, off the event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call. A call that is cancelled still ends by itself, before the next one."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(call, *args, **kwargs))

    async def close(self, call: Callable[[], None]) -> None:
        """A last call, also when the task is being cancelled; then the thread ends."""
        try:
            await asyncio.shield(self.run(call))
        finally:
            self._executor.shutdown(wait=False)
