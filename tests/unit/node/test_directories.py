"""What a broker notes of itself in its data directories, and what its successor makes of that."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.model.ids import TopicPartition
from penstock.node.directories import Directories, Predecessor
from penstock.node.failures import CannotStart
from penstock.runtime.logs.directories import LogDirectory
from penstock.storage.files import OsFile, OsFilesystem, StorageError
from penstock.storage.metadata_files import BootMarker, read_boot_marker

BOOT = "monday"
INCARNATION = bytes(range(16))


class FullDisk(OsFilesystem):
    """No new file can be written."""

    def write_file(self, path: Path, _data: bytes) -> None:  # type: ignore[override]
        raise StorageError(f"cannot write {path}: no space is left", errno.ENOSPC)


class BrokenDisk(OsFilesystem):
    """Nothing below a path can be opened; what is there can be deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        if path.is_relative_to(self.path):
            raise StorageError(f"cannot open {path}", errno.EIO)
        return super().open(path, create=create)


def directories(path: Path, filesystem: OsFilesystem, *more: Path) -> Directories:
    env: Any = SimpleNamespace(filesystem=filesystem, boot_id=BOOT)
    settings: Any = SimpleNamespace(is_broker=True)
    made = Directories(env, settings)
    ids = {one: b"directory-number"[:15] + bytes([number]) for number, one in enumerate((path, *more))}
    made.log_directories = [LogDirectory(one, ids[one], lost_power=False, failed_before=False) for one in ids]
    made.predecessor = Predecessor(7, frozenset(ids.values()))
    return made


def test_who_registers_is_noted_until_its_epoch_is(tmp_path: Path) -> None:
    noting = directories(tmp_path, OsFilesystem())
    noting.note_registering(INCARNATION)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(7, True, INCARNATION)
    noting.note_epoch(9)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(9, True)


def test_a_full_disk_does_not_make_a_broker_forget_that_it_lost_nothing(tmp_path: Path) -> None:
    directories(tmp_path, OsFilesystem()).note_epoch(7)
    full = directories(tmp_path, FullDisk())
    full.note_registering(INCARNATION)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(7, True, INCARNATION)
    full.note_epoch(9)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(9, True)


def test_an_epoch_that_cannot_be_noted_ends_the_incarnation_with_its_process(tmp_path: Path) -> None:
    """Another process that went on as the same incarnation would have the epoch of one that has served."""
    directories(tmp_path, OsFilesystem()).note_registering(INCARNATION)
    broken = directories(tmp_path, BrokenDisk(tmp_path))
    with pytest.raises(CannotStart):
        broken.note_registering(bytes(16))
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(7, True, INCARNATION)
    broken.note_epoch(9)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) is None


@pytest.mark.parametrize("which", [0, 1])
def test_a_directory_that_does_not_take_its_marker_fails_and_the_other_names_it(tmp_path: Path, which: int) -> None:
    paths = [tmp_path / "data", tmp_path / "more"]
    for path in paths:
        path.mkdir()
    noting = directories(paths[0], BrokenDisk(paths[which]), paths[1])
    noting.note_epoch(9)
    broken, sound = noting.log_directories[which], noting.log_directories[1 - which]
    assert broken.failure is not None
    assert sound.failure is None
    assert read_boot_marker(OsFilesystem(), broken.path, BOOT) is None
    marker = read_boot_marker(OsFilesystem(), sound.path, BOOT)
    assert marker == BootMarker(9, True, failed=(broken.directory_id,))


class StickyDisk(FullDisk):
    """Nothing can be written, not even in place, and nothing removed."""

    def open(self, path: Path, *, create: bool = False) -> OsFile:  # noqa: ARG002
        raise StorageError(f"cannot open {path}", errno.EMFILE)

    def unlink(self, path: Path) -> None:
        raise StorageError(f"cannot remove {path}", errno.EIO)


def test_a_directory_whose_old_marker_stays_fails(tmp_path: Path) -> None:
    sticky = directories(tmp_path, StickyDisk())
    sticky.note_epoch(9)
    failure = sticky.log_directories[0].failure
    assert failure is not None
    assert failure.errno == errno.EIO


def test_a_full_disk_without_a_marker_is_not_trusted_and_does_not_fail(tmp_path: Path) -> None:
    full = directories(tmp_path, FullDisk())
    full.note_registering(INCARNATION)
    full.note_epoch(9)
    assert full.log_directories[0].failure is None
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) is None


class Life:
    """One process of a broker with the data directories /data and /more, and what it claims to have kept."""

    def __init__(self, path: Path, *, broken: str = "") -> None:
        env: Any = SimpleNamespace(filesystem=OneBrokenDisk(path / broken if broken else None), boot_id=BOOT)
        env.random = Random(1)
        settings: Any = SimpleNamespace(
            node_id=1,
            is_broker=True,
            log_dirs=[str(path / "data"), str(path / "more")],
            metadata_log_dir=str(path / "data"),
            controller_quorum_voters=[SimpleNamespace(node_id=1)],
        )
        self.directories = Directories(env, settings)
        self.directories.claim()
        self.data, self.more = self.directories.log_directories

    @property
    def claim(self) -> tuple[int, int, list[str]]:
        """The epoch under which everything is here; else the one under which these directories are intact."""
        previous = self.directories.predecessor
        names = [one.path.name for one in (self.data, self.more) if one.directory_id in previous.directories]
        return self.directories.previous_broker_epoch, previous.epoch, names

    def serve(self, epoch: int) -> Life:
        """Register and be killed, with all directories that work in use."""
        self.directories.note_registering(bytes([epoch] * 16))
        self.directories.note_epoch(epoch)
        self.directories.note_checked(epoch)
        return self

    def fail(self, directory: LogDirectory, epoch: int) -> None:
        directory.failure = StorageError("a bad sector")
        self.directories.note_epoch(epoch)

    def end(self) -> None:
        self.directories.release()


class OneBrokenDisk(OsFilesystem):
    """One of several directories cannot be used."""

    def __init__(self, broken: Path | None) -> None:
        super().__init__()
        self._broken = broken

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        if self._broken is not None and self._broken in path.parents:
            raise StorageError(f"cannot open {path}")
        return super().open(path, create=create)

    def write_file(self, path: Path, data: Any) -> OsFile:
        if self._broken is not None and self._broken in path.parents:
            raise StorageError(f"cannot write {path}")
        return super().write_file(path, data)


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Two data directories that a broker has used in epoch 7."""
    Life(tmp_path).serve(7).end()
    return tmp_path


def test_a_killed_broker_has_everything(disks: Path) -> None:
    assert Life(disks).claim == (7, 7, ["data", "more"])


def test_a_directory_that_failed_under_the_last_process_is_not_trusted(disks: Path) -> None:
    """It works again, on a machine that stayed up; but what was not on the disk when it failed may be gone."""
    life = Life(disks)
    life.serve(9).fail(life.more, 9)
    life.end()
    back = Life(disks)
    assert back.claim == (-1, 9, ["data"])
    assert (back.data.lost_power, back.more.lost_power) == (False, True), "its logs are searched for gaps"


def test_a_directory_that_the_last_process_could_not_use_is_not_trusted(disks: Path) -> None:
    without = Life(disks, broken="more")
    assert without.more.failure is not None
    assert without.claim == (7, 7, ["data"]), "which is everything that works"
    without.serve(9).end()
    assert Life(disks).claim == (-1, 9, ["data"])


def test_an_untrusted_directory_stays_so_until_the_broker_has_registered(disks: Path) -> None:
    life = Life(disks)
    life.serve(9).fail(life.more, 9)
    life.end()
    killed = Life(disks)
    killed.directories.note_registering(INCARNATION)
    killed.end()
    back = Life(disks)
    assert back.claim == (-1, 9, ["data"])
    assert back.directories.begun_incarnation == INCARNATION
    back.serve(11).end()
    assert Life(disks).claim == (11, 11, ["data", "more"])


FUTURE = "orders-0.0123456789abcdef0123456789abcdef-future"


@pytest.mark.parametrize(
    ("logs", "trusted"),
    [
        # Either may become the replica.
        (("data/orders-0", "more/orders-0"), []),
        (("data/orders-0", f"more/{FUTURE}"), ["data"]),
        (("more/orders-0", f"data/{FUTURE}"), ["data"]),
        # The replica may have been in the directory that failed, before it was removed.
        ((f"data/{FUTURE}",), []),
        ((f"more/{FUTURE}",), []),
    ],
)
def test_logs_that_may_become_replicas_and_lack_records(disks: Path, logs: Sequence[str], trusted: list[str]) -> None:
    for name in ("data/__cluster_metadata-0", *logs):
        (disks / name).mkdir()
    assert Life(disks).claim == (7, 7, ["data", "more"]), "nothing has failed"
    life = Life(disks)
    life.serve(9).fail(life.more, 9)
    life.end()
    assert Life(disks).claim == (-1, 9 if trusted else -1, trusted)


def test_a_directory_that_failed_is_in_doubt_until_its_logs_were_written_again(disks: Path) -> None:
    """Also where no other directory could record that, and if the next process is killed before it has checked."""
    life = Life(disks)
    life.serve(9)
    for directory in (life.more, life.data):
        life.fail(directory, 9)
    life.end()
    killed = Life(disks)
    assert killed.claim == (-1, 9, [])
    assert (killed.data.failed_before, killed.more.failed_before) == (True, True)
    killed.directories.note_registering(INCARNATION)
    killed.directories.note_epoch(11)
    killed.end()
    back = Life(disks)
    assert (back.data.failed_before, back.more.failed_before) == (True, True)
    back.serve(13).end()
    checked = Life(disks)
    assert (checked.data.failed_before, checked.more.failed_before) == (False, False)
    assert checked.claim == (13, 13, ["data", "more"])


def test_a_directory_is_in_doubt_if_its_failure_could_not_be_recorded_there(disks: Path) -> None:
    life = Life(disks, broken="more")
    assert life.more.failure is not None
    life.serve(9).end()
    assert Life(disks).more.failed_before


def test_a_directory_with_a_future_replica_is_checked_by_the_next_start(disks: Path) -> None:
    """Its move opens it later; until then a start must know what the power failure may have taken."""
    life = Life(disks)
    life.more.lost_power, life.more.found_futures = True, {TopicPartition("orders", 0): FUTURE}
    life.serve(9).end()
    back = Life(disks)
    assert (back.data.lost_power, back.more.lost_power) == (False, True)
