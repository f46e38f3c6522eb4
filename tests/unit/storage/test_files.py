"""The operating system's files: short writes and reads, torn writes, what is durable when, and errors that help."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.storage.files import DiskSpace, OsFilesystem, StorageError

DISK = OsFilesystem()


def fail(number: int) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return call


def at_most(call: Callable[[int, Any, int], int], size: int) -> Callable[[int, Any, int], int]:
    return lambda descriptor, data, position: call(descriptor, memoryview(data)[:size], position)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.open(tmp_path / "log", create=True)
    monkeypatch.setattr(os, "pwrite", at_most(os.pwrite, 3))
    file.append(b"0123456789")
    file.append(b"ab")
    assert file.size == 12
    assert (tmp_path / "log").read_bytes() == b"0123456789ab"


def test_a_disk_that_accepts_nothing_more_is_an_error_and_leaves_no_part_of_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DISK.open(tmp_path / "log", create=True)
    file.append(b"kept")
    sizes = [2, 0]
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda d, data, position: write(d, memoryview(data)[: sizes.pop(0)], position))
    with pytest.raises(StorageError) as raised:
        file.append(b"lost")
    assert raised.value.errno == errno.EIO
    assert file.size == 4
    assert (tmp_path / "log").read_bytes() == b"kept"


def test_the_next_append_removes_a_torn_write_that_could_not_be_removed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DISK.open(tmp_path / "log", create=True)
    file.append(b"kept")
    write = os.pwrite
    with monkeypatch.context() as failing:
        failing.setattr(os, "ftruncate", fail(errno.EIO))
        results: list[Callable[..., int]] = [at_most(write, 3), fail(errno.ENOSPC)]
        failing.setattr(os, "pwrite", lambda *arguments: results.pop(0)(*arguments))
        # The write's own error is reported.
        with pytest.raises(StorageError, match="Free space on this disk") as raised:
            file.append(b"torn!")
        assert raised.value.errno == errno.ENOSPC
        failing.setattr(os, "pwrite", write)
        with pytest.raises(StorageError, match="cut a torn write off"):
            file.append(b"x")
    assert (tmp_path / "log").read_bytes() == b"kepttor"
    file.append(b"x")
    assert (tmp_path / "log").read_bytes() == b"keptx"
    # Once is enough: a later append must not cut what a reader of the file has seen.
    monkeypatch.setattr(os, "ftruncate", fail(errno.EIO))
    file.append(b"y")
    assert (tmp_path / "log").read_bytes() == b"keptxy"


def test_a_short_read_is_continued_up_to_the_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    file = DISK.open(tmp_path / "log")
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: read(descriptor, min(size, 3), position))
    assert file.read(1, 8) == b"12345678"
    assert file.read(4, 100) == b"456789"
    assert file.read(10, 5) == b""
    monkeypatch.setattr(os, "pread", fail(errno.EIO))
    with pytest.raises(StorageError, match="Cannot read"):
        file.read(0, 1)


def test_an_overwrite_keeps_the_size_and_is_never_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.write_file(tmp_path / "marker", b"0123456789")
    file.overwrite(b"ab")
    file.overwrite(b"cdefghijkl")
    assert (tmp_path / "marker").read_bytes() == b"cdefghijkl"
    with monkeypatch.context() as failing:
        failing.setattr(os, "pwrite", at_most(os.pwrite, 3))
        with pytest.raises(StorageError, match="only 3 of 4 bytes"):
            file.overwrite(b"wxyz")
    monkeypatch.setattr(os, "pwrite", fail(errno.EIO))
    with pytest.raises(StorageError, match="Cannot write to"):
        file.overwrite(b"wxyz")


def test_a_file_is_replaced_durably_and_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"a longer content of before")
    steps: list[str] = []

    def noted(name: str) -> None:
        call = getattr(os, name)

        def noting(*arguments: Any) -> Any:
            present = path.read_bytes()
            steps.append(f"{name} with {present.decode()}")
            return call(*arguments)

        monkeypatch.setattr(os, name, noting)

    for name in ("fdatasync", "replace", "fsync"):
        noted(name)
    DISK.replace_file(path, b"new")
    old = "a longer content of before"
    assert steps == [f"fdatasync with {old}", f"replace with {old}", "fsync with new"]
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]


def test_files_are_written_anew_listed_and_removed(tmp_path: Path) -> None:
    DISK.make_directory(tmp_path / "a" / "b")
    DISK.make_directory(tmp_path / "a" / "b")
    DISK.write_file(tmp_path / "a" / "file", b"longer than the next")
    assert DISK.write_file(tmp_path / "a" / "file", b"short").size == 5
    assert DISK.write_file(tmp_path / "a" / "b" / "empty", b"").size == 0
    assert DISK.read_file(tmp_path / "a" / "file") == b"short"
    assert DISK.list_directory(tmp_path / "a") == {"b": -1, "file": 5}
    assert (DISK.exists(tmp_path / "a"), DISK.exists(tmp_path / "c")) == (True, False)
    os.utime(tmp_path / "a" / "file", ns=(0, 1_234_567_890))
    assert DISK.modified_ms(tmp_path / "a" / "file") == 1_234
    DISK.rename(tmp_path / "a" / "file", tmp_path / "renamed")
    DISK.unlink(tmp_path / "renamed")
    DISK.unlink(tmp_path / "renamed")
    DISK.remove_directory(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_reserved_truncated_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.write_file(tmp_path / "log", b"0123456789")
    file.reserve(4_096)
    assert (tmp_path / "log").stat().st_size == 4_096
    assert file.size == 10
    file.truncate(4)
    assert file.size == 4
    assert (tmp_path / "log").read_bytes() == b"0123"
    file.append(b"x")
    assert (tmp_path / "log").read_bytes() == b"0123x"
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file.sync()
    assert synced == [file.fileno()]


def test_a_lock_is_held_until_its_file_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = DISK.lock(tmp_path / ".lock")
    assert held is not None
    assert DISK.lock(tmp_path / ".lock") is None
    del held
    assert DISK.lock(tmp_path / ".lock") is not None
    monkeypatch.setattr("penstock.storage.files.fcntl.fcntl", fail(errno.ENOLCK))
    with pytest.raises(StorageError, match="Cannot lock"):
        DISK.lock(tmp_path / ".lock")


def test_free_space_is_what_users_may_still_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(f_blocks=100, f_frsize=4_096, f_bsize=512, f_bavail=25, f_bfree=30)
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    space = DISK.disk_space(tmp_path)
    assert space == DiskSpace(409_600, 102_400)
    assert space.used_fraction == 0.75


OPERATIONS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "open": ("open", lambda path: DISK.open(path)),
    "rename": ("replace", lambda path: DISK.rename(path, path.with_name("other"))),
    "delete": ("unlink", lambda path: DISK.unlink(path)),
    "list": ("scandir", lambda path: DISK.list_directory(path.parent)),
    "create the directory": ("makedirs", lambda path: DISK.make_directory(path.with_name("directory"))),
    "remove the directory": ("rmdir", lambda path: DISK.remove_directory(path.parent)),
    "open the directory": ("open", lambda path: DISK.sync_directory(path.parent)),
    "sync the directory": ("fsync", lambda path: DISK.sync_directory(path.parent)),
    "look at": ("stat", lambda path: DISK.modified_ms(path)),
    "ask for the free space of": ("statvfs", lambda path: DISK.disk_space(path)),
}
FILE_OPERATIONS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "truncate": ("ftruncate", lambda file: file.truncate(1)),
    "reserve space for": ("posix_fallocate", lambda file: file.reserve(100)),
    "sync": ("fdatasync", lambda file: file.sync()),
}


@pytest.mark.parametrize("action", [*OPERATIONS, *FILE_OPERATIONS])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_failures_are_storage_errors_that_name_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, number: int
) -> None:
    path = tmp_path / "present"
    file = DISK.write_file(path, b"content")
    name: str
    operation: Callable[[Any], object]
    name, operation = OPERATIONS[action] if action in OPERATIONS else FILE_OPERATIONS[action]
    with monkeypatch.context() as failing:
        failing.setattr(os, name, fail(number))
        with pytest.raises(StorageError, match=f"^Cannot {action} ") as raised:
            operation(path if action in OPERATIONS else file)
    assert raised.value.errno == number
    assert file.size == 7
    assert ("Free space" in str(raised.value)) is (number == errno.ENOSPC)
    assert ("ulimit" in str(raised.value)) is (number == errno.EMFILE)


@pytest.mark.parametrize("action", ["open", "rename", "list", "open the directory", "look at"])
def test_what_is_missing_is_no_failure_of_the_disk(tmp_path: Path, action: str) -> None:
    with pytest.raises(FileNotFoundError):
        OPERATIONS[action][1](tmp_path / "missing" / "file")


@pytest.mark.parametrize("fails", [False, True])
def test_a_directory_is_closed_after_its_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    closed: list[int] = []
    synced: list[int] = []
    close = os.close

    def noted(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        if fails:
            raise OSError(errno.EIO, "refused")

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", noted)
        patched.setattr(os, "fsync", sync)
        if fails:
            with pytest.raises(StorageError):
                DISK.sync_directory(tmp_path)
        else:
            DISK.sync_directory(tmp_path)
    (descriptor,) = synced
    assert descriptor in closed


@pytest.mark.parametrize(
    ("number", "full", "passing", "failed"),
    [
        (errno.ENOSPC, True, True, False),
        (errno.EDQUOT, True, True, False),
        (errno.EMFILE, False, True, False),
        (errno.ENFILE, False, True, False),
        (errno.EIO, False, False, True),
        (errno.EROFS, False, False, True),
        (0, False, False, False),
    ],
)
def test_errors_are_classified_by_what_cures_them(number: int, full: bool, passing: bool, failed: bool) -> None:
    error = StorageError("refused", number)
    assert (error.is_disk_full, error.is_passing, error.is_disk_failure) == (full, passing, failed)


def test_a_file_that_goes_while_its_directory_is_listed_is_left_out(tmp_path: Path) -> None:
    """It looked as if the directory were gone."""
    (tmp_path / "kept").write_bytes(b"12")
    # A name without a file, as an entry is that was removed after it was read.
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert OsFilesystem().list_directory(tmp_path) == {"kept": 2}
