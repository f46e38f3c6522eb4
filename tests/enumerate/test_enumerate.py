"""Nothing that can happen at an operation on the disk breaks a promise."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from enumerate.cases import FAULTS
from enumerate.disk import StepFilesystem, Trouble, copy_disk
from enumerate.every import NAMES, enumeration_of
from enumerate.power import fingerprint, leftovers, lose_unsynced
from enumerate.promises import POWER
from penstock.storage.files import StorageError
from sim.disk import SimDisk

SHOWN_MAX = 3
FILE = Path("/data/file")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_every_crash_error_and_stall(name: str) -> None:
    enumeration = enumeration_of(name)
    assert enumeration.undisturbed == []
    for fault in FAULTS:
        # The command runs them all.
        stride = enumeration.sampling if fault == POWER else 1
        outcomes = [outcome for outcome in enumeration.run(fault, stride=stride) if outcome.anomalies]
        shown = "\n".join(map(str, outcomes[:SHOWN_MAX]))
        assert not outcomes, f"{len(outcomes)} cases of {name} with {fault} break a promise:\n{shown}"


def new_disk(trouble: Trouble | None = None) -> tuple[SimDisk, StepFilesystem]:
    disk = SimDisk()
    filesystem = StepFilesystem(disk, lambda: 0)
    filesystem.record(trouble)
    return disk, filesystem


def test_a_power_cut_leaves_every_prefix_and_nothing_that_was_not_written() -> None:
    disk, filesystem = new_disk()
    file = filesystem.write_file(FILE, b"")
    file.sync()
    filesystem.sync_directory(FILE.parent)
    for data in (b"one", b"two", b"three"):
        file.append(data)
    left = {filesystem_of(one).read_file(FILE) for _, one in leftovers(disk)}
    assert {b"", b"one", b"onetwo", b"onetwothree", bytes(11)} <= left
    assert all(b"onetwothree".startswith(data.rstrip(b"\0")) for data in left)
    assert fingerprint(lose_unsynced(disk)) != fingerprint(disk) == fingerprint(copy_disk(disk))


def filesystem_of(disk: SimDisk) -> StepFilesystem:
    return StepFilesystem(disk, lambda: 0)


def test_unsynced_names_come_and_go_in_order() -> None:
    disk, filesystem = new_disk()
    for name in "abc":
        filesystem.write_file(FILE.with_name(name), b"")
    listed = {"".join(sorted(filesystem_of(one).list_directory(FILE.parent))) for _, one in leftovers(disk)}
    assert listed == {"", "a", "ab", "abc"}


def test_a_failed_sync_loses_what_a_later_one_seems_to_write() -> None:
    disk, filesystem = new_disk(Trouble("eio", 3))
    file = filesystem.write_file(FILE, b"lost")
    with pytest.raises(StorageError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.append(b"kept")
    file.sync()
    filesystem.sync_directory(FILE.parent)
    assert filesystem.read_file(FILE) == b"lostkept"
    assert filesystem_of(lose_unsynced(disk)).read_file(FILE) == bytes(4) + b"kept"


@pytest.mark.parametrize(("variant", "left"), [("enospc", b""), ("eio-uncut", b"to")])
def test_a_short_write_leaves_torn_bytes_only_if_they_cannot_be_cut(variant: str, left: bytes) -> None:
    _, filesystem = new_disk(Trouble("short", 2, variant))
    file = filesystem.write_file(FILE, b"")
    with pytest.raises(StorageError):
        file.append(b"torn")
    assert filesystem.read_file(FILE) == left
    file.append(b"ok")
    assert filesystem.read_file(FILE) == b"ok"
