"""What tiered storage asks of an object store, asked of stores that other people wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from penstock.storage.tier.object_store import PART_BYTES, RemoteStore, StoreError
from support.object_stores import Store
from support.tier_cluster import tier_missing

MISSING = tier_missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
    # It may be fetched first.
    pytest.mark.timeout(900),
]
# S3's pages have 1000 at most.
MANY = 1_050


async def names(opened: RemoteStore, prefix: str) -> dict[str, int]:
    return {listed.path: listed.size_bytes async for listed in opened.list(prefix)}


def test_small_objects(store: Store) -> None:
    async def run() -> None:
        opened = store.open()
        for content in (b"first", b"", b"second, which is longer"):
            await opened.put("small/00-a_B.log", content)
            assert await opened.get("small/00-a_B.log") == content
        assert await names(opened, "small/") == {"small/00-a_B.log": 23}
        assert bytes(await opened.get_range("small/00-a_B.log", 8, 5)) == b"which"
        await opened.delete(["small/00-a_B.log", "small/never-there"])
        assert await names(opened, "small/") == {}
        with pytest.raises(FileNotFoundError):
            await opened.get("small/00-a_B.log")
        with pytest.raises(FileNotFoundError):
            await opened.get_range("small/00-a_B.log", 0, 1)

    asyncio.run(run())


def test_large_objects_go_in_parts_and_come_in_ranges(store: Store, tmp_path: Path) -> None:
    content = Random(7).randbytes(2 * PART_BYTES + 12_345)
    path = tmp_path / "segment"
    path.write_bytes(content)

    async def run() -> None:
        opened = store.open()
        await opened.put("large/file", path)
        await opened.put("large/bytes", content)
        assert await names(opened, "large/") == {"large/file": len(content), "large/bytes": len(content)}
        for name in ("large/file", "large/bytes"):
            assert await opened.get(name) == content
            for start, size in ((0, 1), (PART_BYTES - 10, 20), (len(content) - 1, 1)):
                assert bytes(await opened.get_range(name, start, size)) == content[start : start + size]
            # The last read of a segment asks for more than there is.
            assert bytes(await opened.get_range(name, len(content) - 5, 100)) == content[-5:]

    asyncio.run(run())


def test_copies_are_whole_or_refused(store: Store) -> None:
    async def run() -> None:
        opened = store.open()
        await opened.put("copies/from", b"content")
        if not store.has_copy:
            with pytest.raises(StoreError, match="has 0 of 7 bytes"):
                await opened.copy("copies/from", "copies/to", 7)
            return
        await opened.copy("copies/from", "copies/to", 7)
        assert await opened.get("copies/to") == b"content"

    asyncio.run(run())


def test_listings_of_many_pages(store: Store) -> None:
    expected = {f"many/{number % 3}/{number:05d}": 1 for number in range(MANY)}

    async def run() -> None:
        opened = store.open()
        places = asyncio.Semaphore(16)

        async def put(path: str) -> None:
            async with places:
                await opened.put(path, b"x")

        await asyncio.gather(*(put(path) for path in expected))
        assert await names(opened, "many/") == expected
        # A prefix ends at a slash: what only begins alike is not in it.
        await opened.put("many/10/x", b"x")
        assert set(await names(opened, "many/1/")) == {path for path in expected if path.startswith("many/1/")}
        assert len(await names(opened, "")) > MANY

    asyncio.run(run())


def test_a_bucket_that_is_not_there_is_named(store: Store) -> None:
    async def run() -> None:
        elsewhere = store._replace(url=store.url.replace("//tier/", "//no-such-bucket/")).open()
        with pytest.raises(StoreError, match=r"writing some/path: .*no-such-bucket"):
            await elsewhere.put("some/path", b"content")
        with pytest.raises(StoreError, match=r"listing some/: .*no.*such.*bucket"):
            await names(elsewhere, "some/")

    asyncio.run(run())
