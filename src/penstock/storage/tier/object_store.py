"""The object store: S3, Google Cloud Storage, Azure or a directory, through the library obstore.

Every call has a deadline. What fails raises StoreError, whose message contains what was tried; reading an object that
does not exist raises FileNotFoundError.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.record_types import Buffer

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Remote

T = TypeVar("T")

# Objects larger than this are sent in parts of this size.
PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 4
LISTED_AT_ONCE = 500


class StoreError(ApiError):
    """The object store does not answer, or refuses."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class Listed(NamedTuple):
    """An object in a listing."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """What is used of an object store."""

    async def put(self, path: str, content: bytes | Path) -> None:
        """Write an object, replacing one of the same path; all of it is there on return."""

    async def get(self, path: str) -> bytes:
        """All of an object."""

    async def get_range(self, path: str, start: int, size: int) -> Buffer:
        """A part of an object."""

    async def copy(self, source: str, target: str, size_bytes: int) -> None:
        """Copy an object of a known size within the store, replacing one of the same path; all of it is there then."""

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are not there are none."""

    def list(self, prefix: str) -> AsyncIterator[Listed]:
        """The objects whose path begins with a prefix that ends in '/', or all."""


class RemoteStore:
    """An object store behind a URL; a path in it is a prefix for everything."""

    def __init__(self, remote: Remote, url: str, timeout_ms: int) -> None:
        self._remote = remote
        self._url = url
        self._timeout_s = timeout_ms / 1000

    @classmethod
    def open(cls, url: str, options: Mapping[str, str], timeout_ms: int) -> RemoteStore:
        """The store behind a URL such as s3://bucket/prefix, gs://…, az://… or file:///directory.

        Raises StoreError when the URL or an option is wrong, or obstore is not installed.
        """
        try:
            from obstore.store import LocalStore, from_url
        except ImportError:
            raise StoreError("tiered storage needs the library obstore: pip install penstock[tier]") from None
        try:
            if urlsplit(url).scheme == "file":
                directory = unquote(urlsplit(url).path)
                return cls(LocalStore(directory, mkdir=True), url, timeout_ms)
            client: Any = {"allow_http": options.get("allow_http", "false").lower() == "true"}
            given: Any = {name: value for name, value in options.items() if name != "allow_http"}
            retries: Any = {"max_retries": 3, "retry_timeout": timedelta(milliseconds=timeout_ms)}
            return cls(from_url(url, config=given, client_options=client, retry_config=retries), url, timeout_ms)
        except Exception as error:
            raise StoreError(f"{url} cannot be opened: {error}") from error

    async def put(self, path: str, content: bytes | Path) -> None:
        """See ObjectStore."""
        from obstore import put_async

        sending = put_async(self._remote, path, content, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        size = len(content) if isinstance(content, bytes) else os.stat(content).st_size
        # A large object may take longer than a request does.
        await self._call(f"writing {path}", sending, self._timeout_s * (1 + size // PART_BYTES))
        if not isinstance(content, bytes):
            await self._check_size(path, size)

    async def get(self, path: str) -> bytes:
        """See ObjectStore."""
        from obstore import get_async

        async def read() -> bytes:
            return bytes(await (await get_async(self._remote, path)).bytes_async())

        return await self._call(f"reading {path}", read(), may_miss=True)

    async def get_range(self, path: str, start: int, size: int) -> Buffer:
        """See ObjectStore."""
        from obstore import get_range_async

        asked = get_range_async(self._remote, path, start=start, length=size)
        # Not copied: parts are large.
        return memoryview(await self._call(f"reading {path}", asked, may_miss=True))

    async def copy(self, source: str, target: str, size_bytes: int) -> None:
        """See ObjectStore."""
        from obstore import copy_async

        await self._call(f"copying {source}", copy_async(self._remote, source, target))
        # A store that does not know the header for copying takes it for an empty object.
        await self._check_size(target, size_bytes)

    async def delete(self, paths: Sequence[str]) -> None:
        """See ObjectStore."""
        from obstore import delete_async

        for path in paths:
            # Not all stores delete many at once, and some name a missing one an error.
            with contextlib.suppress(FileNotFoundError):
                await self._call(f"deleting {path}", delete_async(self._remote, path), may_miss=True)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        """See ObjectStore."""
        from obstore import list as list_objects

        stream = list_objects(self._remote, prefix or None, chunk_size=LISTED_AT_ONCE)
        while True:
            try:
                found = await self._call(f"listing {prefix}", stream.__anext__())
            except StopAsyncIteration:
                return
            for one in found:
                yield Listed(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000))

    async def _check_size(self, path: str, size_bytes: int) -> None:
        from obstore import head_async

        stored = await self._call(f"checking {path}", head_async(self._remote, path))
        if stored["size"] != size_bytes:
            raise StoreError(f"{path} has {stored['size']} of {size_bytes} bytes after it was written")

    async def _call(
        self, what: str, answer: Awaitable[T], timeout_s: float | None = None, *, may_miss: bool = False
    ) -> T:
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                return await answer
        except StopAsyncIteration:
            raise
        except TimeoutError:
            raise StoreError(f"{what}: {self._url} did not answer in time") from None
        except FileNotFoundError as error:
            if may_miss:
                raise
            raise StoreError(f"{what}: {self._url} is not there, or has no such object") from error
        except Exception as error:
            # What follows the first line is the library's own account of it.
            raise StoreError(f"{what}: {str(error).partition(chr(10))[0]}") from error
