"""An object store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from penstock.storage.tier.object_store import Listed


class MemoryStore:
    """Objects by path, and the paths that were read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.ranges: list[tuple[str, int]] = []
        self.listed: list[str] = []

    async def put(self, path: str, content: bytes | Path) -> None:
        if not isinstance(content, bytes):
            with open(content, "rb") as file:  # noqa: ASYNC230
                content = file.read()
        self.objects[path] = content

    async def get(self, path: str) -> bytes:
        self.reads.append(path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    async def get_range(self, path: str, start: int, size: int) -> bytes:
        self.ranges.append((path, start))
        return (await self.get(path))[start : start + size]

    async def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.objects.pop(path, None)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        self.listed.append(prefix)
        for path, content in self.objects.items():
            if path.startswith(prefix):
                yield Listed(path, len(content), 0)
