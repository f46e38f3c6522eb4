"""One thread for the blocking calls of one client, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs calls one after the other, off the event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._calls: deque[Future[Any]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no call runs or waits, such as one whose caller was canceled."""
        self._forget_ended()
        return not self._calls

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call. If its caller is canceled, a call that runs ends by itself, before the next one."""
        self._forget_ended()
        future = self._executor.submit(partial(call, *args, **kwargs))
        self._calls.append(future)
        return await asyncio.wrap_future(future)

    async def run_to_end(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call that is made even if its caller is canceled before it starts."""
        return await asyncio.shield(self.run(call, *args, **kwargs))

    async def close(self, call: Callable[[], None]) -> None:
        """A last call, also when the task is being cancelled; then the thread ends."""
        try:
            await self.run_to_end(call)
        finally:
            self._executor.shutdown(wait=False)

    def _forget_ended(self) -> None:
        while self._calls and self._calls[0].done():
            self._calls.popleft()
