"""What a broker notes of itself in its data directories, and what its successor makes of that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.node.directories import Directories
from penstock.runtime.logs.directories import LogDirectory
from penstock.storage.files import OsFilesystem, StorageError
from penstock.storage.metadata_files import BootMarker, read_boot_marker

BOOT = "monday"
INCARNATION = bytes(range(16))


class FullDisk(OsFilesystem):
    """Nothing can be written; what is there can be deleted."""

    def write_file(self, path: Path, _data: bytes) -> None:
        raise StorageError(f"cannot write {path}: no space is left")


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


def test_an_epoch_that_cannot_be_noted_ends_the_incarnation_with_its_process(tmp_path: Path) -> None:
    """Another process that went on as the same incarnation would have the epoch of one that has served."""
    directories(tmp_path, OsFilesystem()).note_registering(INCARNATION)
    full = directories(tmp_path, FullDisk())
    full.note_registering(bytes(16))
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) == BootMarker(7, True, INCARNATION)
    full.note_epoch(9)
    assert read_boot_marker(OsFilesystem(), tmp_path, BOOT) is None
