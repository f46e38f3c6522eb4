"""What a broker notes of itself in its data directories, and what its successor makes of that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.node.directories import Directories
from penstock.runtime.logs.directories import LogDirectory
from penstock.storage.files import OsFile, OsFilesystem, StorageError
from penstock.storage.metadata_files import BootMarker, read_boot_marker

BOOT = "monday"
INCARNATION = bytes(range(16))


class FullDisk(OsFilesystem):
    """No new file can be written."""

    def write_file(self, path: Path, _data: bytes) -> None:  # type: ignore[override]
        raise StorageError(f"cannot write {path}: no space is left")


class BrokenDisk(OsFilesystem):
    """Nothing can be opened; what is there can be deleted."""

    def open(self, path: Path, *, create: bool = False) -> OsFile:  # noqa: ARG002
        raise StorageError(f"cannot open {path}")


def directories(path: Path, filesystem: OsFilesystem) -> Directories:
    env: Any = SimpleNamespace(filesystem=filesystem, boot_id=BOOT)
    settings: Any = None
    made = Directories(env, settings)
    made.log_directories = [LogDirectory(path, bytes(16), lost_power=False)]
    made.previous_broker_epoch = 7
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
    broken = directories(tmp_path, BrokenDisk())
    broken.note_registering(bytes(16))
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(7, True, INCARNATION)
    broken.note_epoch(9)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) is None
