"""An event loop whose clock jumps to the next timer when there is nothing to do, and an environment that uses it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from penstock.runtime.env import SystemEnv
from penstock.storage.files import File

T = TypeVar("T")

START_S = 1_000.0
WALL_START_MS = 1_800_000_000_000


class JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: the time it would have waited has passed at once."""

    now_s = START_S

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everybody waits for something that never comes"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now_s


class VirtualEnv(SystemEnv):
    """The clocks are the loop's, and blocking work is done at once; the disk is a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(1)
        self.failed: list[BaseException] = []

    def now_ms(self) -> int:
        return WALL_START_MS + self.passed_ms()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def passed_ms(self) -> int:
        """Milliseconds since the loop began."""
        return self.monotonic_ms() - round(START_S * 1000)

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001
            done.set_exception(error)
        return done

    def sync(self, file: File) -> asyncio.Future[None]:
        return self.run_blocking(file.sync)

    def _ended(self, task: asyncio.Task[None]) -> None:
        super()._ended(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.append(error)

    async def close(self) -> None:
        await super().close()
        assert not self.failed


def run_virtually(story: Callable[[VirtualEnv], Coroutine[Any, Any, None]]) -> None:
    """Run a test's story in virtual time; it fails if a background task did."""

    async def run() -> None:
        env = VirtualEnv()
        try:
            await story(env)
        finally:
            await env.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
