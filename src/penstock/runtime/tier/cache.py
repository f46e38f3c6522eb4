"""A cache on disk of what was read from object storage, with a limit; what was used longest ago makes room.

It is emptied when the broker starts, and nothing depends on it: what cannot be written or read is loaded again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.runtime.env import Env
from penstock.storage.files import StorageError

logger = logging.getLogger("penstock.tier")


class DiskCache:
    """Named pieces of bytes, each loaded once however many ask for it."""

    def __init__(self, env: Env, directory: Path, size_max: Callable[[], int]) -> None:
        self._env = env
        self._directory = directory
        self._size_max = size_max
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._loading: dict[str, asyncio.Future[bytes]] = {}

    @property
    def size_bytes(self) -> int:
        """What is on disk."""
        return self._size

    def open(self) -> None:
        """Create an empty directory, if the disk has room; blocks."""
        filesystem = self._env.filesystem
        try:
            if filesystem.exists(self._directory):
                filesystem.remove_directory(self._directory)
            filesystem.make_directory(self._directory)
        except StorageError as error:
            logger.warning("nothing read from object storage is cached: %s", error)

    def has(self, name: str) -> bool:
        """Whether a piece is here, or on its way."""
        return name in self._sizes or name in self._loading

    async def get(self, name: str, load: Callable[[], Awaitable[bytes]]) -> bytes:
        """A piece, loaded if it is not here. A caller that gives up does not stop the loading."""
        if name in self._sizes:
            self._sizes.move_to_end(name)
            try:
                return await self._env.run_blocking(lambda: self._env.filesystem.read_file(self._directory / name))
            except (StorageError, FileNotFoundError) as error:
                logger.warning("%s is lost from the cache: %s", name, error)
                self.forget(name)
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.get_running_loop().create_future()
            # Whoever asked may have given up by the time it fails.
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._env.spawn(self._load(name, load, loading), f"load {name}")
        return await asyncio.shield(loading)

    def forget(self, name: str) -> None:
        """Drop a piece, such as a damaged one."""
        size = self._sizes.pop(name, None)
        if size is not None:
            self._size -= size
            try:
                self._env.filesystem.unlink(self._directory / name)
            except StorageError as error:
                logger.warning("%s stays in the cache: %s", name, error)

    async def _load(self, name: str, load: Callable[[], Awaitable[bytes]], loading: asyncio.Future[bytes]) -> None:
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
            await self._store(name, data)
        finally:
            del self._loading[name]

    async def _store(self, name: str, data: bytes) -> None:
        if len(data) > self._size_max():
            return
        while self._sizes and self._size + len(data) > self._size_max():
            self.forget(next(iter(self._sizes)))
        try:
            await self._env.run_blocking(lambda: self._env.filesystem.write_file(self._directory / name, data))
        except (StorageError, FileNotFoundError) as error:
            logger.warning("%s cannot be cached: %s", name, error)
            return
        self._sizes[name] = len(data)
        self._size += len(data)
