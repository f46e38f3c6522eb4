"""A cache of what was read from object storage: in memory what came last, and on disk what is read again and again.

A piece goes to disk if it was loaded before, a while ago, or leaves memory before a reader has used it. What one reader
goes through once, from the beginning to the end, is not written: that would cost more than loading it, and push out
what others need. Without room in memory every piece goes to disk. Both have limits, and what was used longest ago
makes room. The cache is emptied when the broker starts, and nothing depends on it: what cannot be written or read, or
is not what was written, is loaded again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from penstock.runtime.env import Env
from penstock.storage.files import StorageError
from penstock.wire.record_types import Buffer

logger = logging.getLogger("penstock.tier")

# Names of pieces that were dropped from memory without being written.
DROPPED_KEPT_MAX = 20_000


class _Stored(NamedTuple):
    """A piece on disk."""

    size: int
    crc: int


class DiskCache:
    """Named pieces of bytes, each loaded once however many readers request it."""

    def __init__(
        self, env: Env, directory: Path, size_max: Callable[[], int], memory_max: Callable[[], int] = lambda: 0
    ) -> None:
        self._env = env
        self._directory = directory
        self._size_max = size_max
        self._stored: OrderedDict[str, _Stored] = OrderedDict()
        self._size = 0
        self._memory_max = memory_max
        self._memory: OrderedDict[str, Buffer] = OrderedDict()
        self._memory_size = 0
        self._unused: set[str] = set()
        self._dropped: OrderedDict[str, None] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Buffer]] = {}

    @property
    def size_bytes(self) -> int:
        """What is on disk."""
        return self._size

    @property
    def memory_bytes(self) -> int:
        """What is in memory."""
        return self._memory_size

    def open(self) -> None:
        """Create an empty directory, if the disk has room; blocks."""
        filesystem = self._env.filesystem
        try:
            if filesystem.exists(self._directory):
                filesystem.remove_directory(self._directory)
            filesystem.make_directory(self._directory)
        except StorageError as error:
            logger.warning("nothing read from object storage is cached: %s", error)

    async def get(self, name: str, load: Callable[[], Awaitable[Buffer]]) -> Buffer:
        """A piece, loaded if it is not here. A caller that gives up does not stop the loading."""
        kept = self._memory.get(name)
        if kept is None and name in self._stored:
            self._stored.move_to_end(name)
            kept = await self._read(name, self._stored[name])
            if kept is not None:
                return kept
        if kept is None:
            kept = await asyncio.shield(self._load_once(name, load))
        self._unused.discard(name)
        if name in self._memory:
            self._memory.move_to_end(name)
        return kept

    async def _read(self, name: str, stored: _Stored) -> bytes | None:
        """A piece as it was written; None, and it is dropped, if the disk does not return that."""

        def read() -> tuple[bytes, int]:
            data = self._env.filesystem.read_file(self._directory / name)
            return data, crc32c(data)

        try:
            data, crc = await self._env.run_blocking(read)
            if (len(data), crc) == stored:
                return data
            reason: object = "its checksum is not what it was"
        except (StorageError, FileNotFoundError) as error:
            reason = error
        logger.warning("%s is lost from the cache: %s", name, reason)
        if self._stored.get(name) is stored:
            self.forget(name)
        return None

    def load_ahead(self, name: str, load: Callable[[], Awaitable[Buffer]]) -> None:
        """Have a piece loaded that a reader will request; that reader gets the error if there is one."""
        if name not in self._stored and name not in self._memory:
            self._load_once(name, load)

    def forget(self, name: str) -> None:
        """Drop a piece, such as a damaged one."""
        self._memory_size -= len(self._memory.pop(name, b""))
        self._unused.discard(name)
        stored = self._stored.pop(name, None)
        if stored is not None:
            self._size -= stored.size
            try:
                self._env.filesystem.unlink(self._directory / name)
            except StorageError as error:
                logger.warning("%s stays in the cache: %s", name, error)

    def _load_once(self, name: str, load: Callable[[], Awaitable[Buffer]]) -> asyncio.Future[Buffer]:
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.get_running_loop().create_future()
            # The readers may have given up by the time it fails.
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._env.spawn(self._load(name, load, loading), f"load {name}")
        return loading

    async def _load(self, name: str, load: Callable[[], Awaitable[Buffer]], loading: asyncio.Future[Buffer]) -> None:
        try:
            data = await load()
        except Exception as error:  # noqa: BLE001 - all that wait for it get it
            del self._loading[name]
            if not loading.done():
                loading.set_exception(error)
            return
        if not loading.done():
            loading.set_result(data)
        try:
            is_kept = self._keep(name, data)
            if not is_kept or name in self._dropped:
                self._dropped.pop(name, None)
                await self._store(name, data)
        finally:
            del self._loading[name]

    def _keep(self, name: str, data: Buffer) -> bool:
        """Keep a piece in memory; False if it is too large for that."""
        room = self._memory_max()
        if len(data) > room:
            return False
        while self._memory_size + len(data) > room:
            oldest, other = self._memory.popitem(last=False)
            self._memory_size -= len(other)
            if oldest in self._unused:
                self._unused.discard(oldest)
                self._move_to_disk(oldest, other)
            elif oldest not in self._stored:
                self._dropped[oldest] = None
                if len(self._dropped) > DROPPED_KEPT_MAX:
                    self._dropped.popitem(last=False)
        self._memory[name] = data
        self._memory_size += len(data)
        self._unused.add(name)
        return True

    def _move_to_disk(self, name: str, data: Buffer) -> None:
        if name in self._loading:
            # It is being written already.
            return
        moving = self._loading[name] = asyncio.get_running_loop().create_future()
        moving.set_result(data)

        async def move() -> None:
            try:
                await self._store(name, data)
            finally:
                del self._loading[name]

        self._env.spawn(move(), f"cache {name}")

    async def _store(self, name: str, data: Buffer) -> None:
        if len(data) > self._size_max() or name in self._stored:
            return
        while self._stored and self._size + len(data) > self._size_max():
            self.forget(next(iter(self._stored)))
        if self._size + len(data) > self._size_max():
            # What is being written takes up all the room, and will be there sooner.
            return
        # Others that are written meanwhile find less room.
        self._size += len(data)

        def write() -> int:
            self._env.filesystem.write_file(self._directory / name, data)
            return crc32c(data)

        try:
            crc = await self._env.run_blocking(write)
        except (StorageError, FileNotFoundError) as error:
            self._size -= len(data)
            logger.warning("%s cannot be cached: %s", name, error)
            return
        self._stored[name] = _Stored(len(data), crc)
