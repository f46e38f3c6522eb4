"""Object stores behind a URL, with a directory as the store: what is stored, what is listed, and which errors come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.tier import object_store
from penstock.storage.tier.object_store import Listed, RemoteStore, StoreError

obstore = pytest.importorskip("obstore")


def run(path: Path, work: Callable[[RemoteStore], Awaitable[None]], timeout_ms: int = 10_000) -> None:
    async def inside() -> None:
        await work(RemoteStore.open(f"file://{path}/bucket", {}, timeout_ms))

    asyncio.run(inside())


def test_objects_are_written_replaced_read_and_deleted(tmp_path: Path) -> None:
    async def work(store: RemoteStore) -> None:
        file = tmp_path / "segment.log"
        file.write_bytes(b"0123456789")
        await store.put("a/bytes", b"before")
        await store.put("a/bytes", b"after")
        await store.put("a/file", file)
        assert await store.get("a/bytes") == b"after"
        assert bytes(await store.get_range("a/file", 3, 4)) == b"3456"
        await store.copy("a/file", "b/copy", 10)
        assert await store.get("b/copy") == b"0123456789"
        # What is gone already is deleted.
        await store.delete(["a/bytes", "missing", "a/file"])
        assert [one.path async for one in store.list("")] == ["b/copy"]
        for path in ("a/bytes", "a/file"):
            with pytest.raises(FileNotFoundError):
                await store.get(path)
        with pytest.raises(FileNotFoundError):
            await store.get_range("a/bytes", 0, 1)

    run(tmp_path, work)


def test_a_listing_has_every_object_below_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "LISTED_AT_ONCE", 3)

    async def work(store: RemoteStore) -> None:
        for number in range(8):
            await store.put(f"a/{number}", b"x" * number)
        await store.put("b/1", b"")
        found = sorted([one async for one in store.list("a/")])
        paths = [tmp_path / "bucket" / "a" / str(number) for number in range(8)]
        assert found == [Listed(f"a/{n}", n, path.stat().st_mtime_ns // 1_000_000) for n, path in enumerate(paths)]
        assert len([one async for one in store.list("")]) == 9
        assert [one async for one in store.list("c/")] == []

    run(tmp_path, work)


def test_an_object_that_is_not_whole_after_it_was_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def head(*_: object) -> dict[str, int]:
        return {"size": 7}

    async def work(store: RemoteStore) -> None:
        file = tmp_path / "segment.log"
        file.write_bytes(b"0123456789")
        monkeypatch.setattr(obstore, "head_async", head)
        with pytest.raises(StoreError, match="a/file has 7 of 10 bytes"):
            await store.put("a/file", file)
        await store.put("a/bytes", b"x")
        with pytest.raises(StoreError, match="b/copy has 7 of 1 bytes"):
            await store.copy("a/bytes", "b/copy", 1)
        await store.copy("a/bytes", "b/copy", 7)

    run(tmp_path, work)


def test_a_store_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> Any:
        await asyncio.Event().wait()

    for name in ("put_async", "get_async", "get_range_async", "copy_async", "delete_async"):
        monkeypatch.setattr(obstore, name, never)

    async def work(store: RemoteStore) -> None:
        calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("writing a", lambda: store.put("a", b"x")),
            ("reading a", lambda: store.get("a")),
            ("reading a", lambda: store.get_range("a", 0, 1)),
            ("copying a", lambda: store.copy("a", "b", 1)),
            ("deleting a", lambda: store.delete(["a"])),
        ]
        for what, call in calls:
            with pytest.raises(StoreError, match=f"^{what}: file://.* did not answer in time$"):
                await call()

    run(tmp_path, work, timeout_ms=20)


def test_a_large_object_has_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda limit_s: limits.append(limit_s) or timeout(limit_s))  # type: ignore[func-returns-value]
    monkeypatch.setattr(object_store, "PART_BYTES", 5 * 1024 * 1024)

    async def work(store: RemoteStore) -> None:
        await store.put("small", b"x")
        await store.put("large", bytes(10 * 1024 * 1024))
        await store.get("large")

    run(tmp_path, work)
    assert limits == [10.0, 30.0, 10.0]


def test_other_errors_are_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError("access denied\nDebug source: everything")

    async def missing(*_: object, **__: object) -> Any:
        raise FileNotFoundError("bucket")

    async def work(store: RemoteStore) -> None:
        monkeypatch.setattr(obstore, "get_async", refuse)
        with pytest.raises(StoreError, match=r"^reading a: access denied$"):
            await store.get("a")
        monkeypatch.setattr(obstore, "put_async", missing)
        with pytest.raises(StoreError, match="is not there, or has no such object"):
            await store.put("a", b"")

    run(tmp_path, work)


def test_a_url_that_no_store_has_cannot_be_opened() -> None:
    with pytest.raises(StoreError, match=r"^ftp://host/path cannot be opened: "):
        RemoteStore.open("ftp://host/path", {}, 1_000)


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    async def work() -> None:
        store = RemoteStore.open(f"file://{tmp_path}/with%20space", {}, 10_000)
        await store.put("a", b"x")
        assert (tmp_path / "with space" / "a").read_bytes() == b"x"

    asyncio.run(work())
