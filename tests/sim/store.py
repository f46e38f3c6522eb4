"""An object store: what was written is there for good, but requests are slow, fail, tear, or are never answered.

`SimStore` is the world's. A request that was sent goes on whatever becomes of the process that sent it: an upload may
arrive after its leader has died and another one has cleaned up. `StoreClient` is one process's way to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from penstock.storage.files import Filesystem
from penstock.storage.tier.object_store import Listed, StoreError
from sim.scheduler import SECOND_US, SimLoop

T = TypeVar("T")

DELAY_US_MAX = 5_000


class StoreFaults:
    """How requests go wrong: parts of all of them, and the nodes that get no answer at all."""

    def __init__(self) -> None:
        self.delay_us_max = DELAY_US_MAX
        # Refused, carried out without saying so, or carried out in part.
        self.failing_part = 0.0
        self.lost_part = 0.0
        self.torn_part = 0.0
        self.away_from: frozenset[str] = frozenset()


class SimStore:
    """The objects, by path, with the time of their last change."""

    def __init__(self, kernel: SimLoop, random: Random, note: Callable[..., None]) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.faults = StoreFaults()
        self._kernel = kernel
        self._random = random
        self._note = note

    def calm(self) -> None:
        """All is well from now on."""
        self.faults = StoreFaults()

    def request(self, node: str, what: str, work: Callable[[float], T], answer: asyncio.Future[T]) -> None:
        """Carry out `work`, with the part of it that happens, and answer later, or not at all."""
        faults, random = self.faults, self._random
        kind = random.random()
        whole = 1.0
        refused, lost = kind < faults.failing_part, faults.failing_part <= kind < faults.failing_part + faults.lost_part
        if random.random() < faults.torn_part:
            whole, lost = random.random(), True
        there_us, back_us = random.randint(100, faults.delay_us_max), random.randint(100, faults.delay_us_max)

        def happen() -> None:
            if node in self.faults.away_from:
                return
            self._note("store", node, what)
            result: Any = StoreError(f"{what}: refused")
            if not refused:
                try:
                    result = work(whole)
                except FileNotFoundError as error:
                    result = error
            if lost:
                result = StoreError(f"{what}: the connection broke")
            self._kernel.call_later(back_us / SECOND_US, respond, result)

        def respond(result: Any) -> None:
            if answer.done() or node in self.faults.away_from:
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self._kernel.call_later(there_us / SECOND_US, happen)

    def now_ms(self) -> int:
        return self._kernel.scheduler.now_us // 1000


class StoreClient:
    """What a node uses of the store; see `penstock.storage.tier.object_store.ObjectStore`."""

    def __init__(self, store: SimStore, node: str, filesystem: Filesystem, timeout_ms: int) -> None:
        self._store = store
        self._node = node
        self._filesystem = filesystem
        self._timeout_s = timeout_ms / 1000

    async def _call(self, what: str, work: Callable[[float], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._store.request(self._node, what, work, answer)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError:
            raise StoreError(f"{what}: no answer in time") from None

    async def put(self, path: str, content: bytes | Path) -> None:
        store = self._store

        sent = content if isinstance(content, bytes) else self._filesystem.read_file(content)

        def work(whole: float) -> None:
            store.objects[path] = sent[: int(len(sent) * whole)] if whole < 1.0 else sent, store.now_ms()

        await self._call(f"put {path}", work)

    async def get(self, path: str) -> bytes:
        return await self._call(f"get {path}", lambda _: self._found(path))

    async def get_range(self, path: str, start: int, size: int) -> bytes:
        return await self._call(f"get {path}", lambda _: self._found(path)[start : start + size])

    def _found(self, path: str) -> bytes:
        if path not in self._store.objects:
            raise FileNotFoundError(path)
        return self._store.objects[path][0]

    async def copy(self, source: str, target: str, size_bytes: int) -> None:  # noqa: ARG002
        def work(_: float) -> None:
            self._store.objects[target] = self._found(source), self._store.now_ms()

        await self._call(f"copy {source}", work)

    async def delete(self, paths: Sequence[str]) -> None:
        def work(whole: float) -> None:
            for path in paths[: len(paths) if whole == 1.0 else int(len(paths) * whole)]:
                self._store.objects.pop(path, None)

        await self._call(f"delete {paths[0]}", work)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        def work(_: float) -> list[Listed]:
            found = sorted(item for item in self._store.objects.items() if item[0].startswith(prefix))
            return [Listed(path, len(content), modified_ms) for path, (content, modified_ms) in found]

        for listed in await self._call(f"list {prefix}", work):
            yield listed
