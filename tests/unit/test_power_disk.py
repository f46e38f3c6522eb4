"""What a power cut leaves of files: from notes that are written here, and from those of a process with the layer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from support.power.disk import ENTRY, EXT4, POSIX, Disk, Kind, Rules
from support.power.machine import IS_CUT, IS_OVER, NEVER, SWITCH, build_layer, power_missing

SEEDS = 200


class Notes:
    """A journal, as layer.c writes it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.journal = b""
        self._syncs = 0

    def note(self, kind: Kind, inode: int = 0, number: int = 0, data: bytes = b"") -> None:
        self.journal += ENTRY.pack(len(data), kind, inode, number, 0) + data

    def create(self, inode: int, name: str) -> None:
        self.note(Kind.CREATE, inode, data=os.fsencode(self._root / name))

    def rename(self, source: str, target: str) -> None:
        self.note(Kind.RENAME, data=os.fsencode(self._root / source) + b"\0" + os.fsencode(self._root / target))

    def sync(self, inode: int) -> None:
        self._syncs += 1
        self.note(Kind.SYNC_START, inode, self._syncs)
        self.note(Kind.SYNC_END, inode, self._syncs)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that has one durable file."""
    made = tmp_path / "data"
    made.mkdir()
    (made / "old").write_bytes(b"before")
    return made


def outcomes(root: Path, notes: Notes, rules: Rules) -> set[tuple[tuple[str, bytes], ...]]:
    """Everything that a power cut may leave."""
    found = set()
    for seed in range(SEEDS):
        disk = made_anew(root, rules)
        disk.replay(notes.journal)
        disk.lose_power(Random(seed))
        found.add(tuple(sorted((path.name, path.read_bytes()) for path in root.iterdir())))
        for path in root.iterdir():
            path.unlink()
        (root / "old").write_bytes(b"before")
    return found


def made_anew(root: Path, rules: Rules) -> Disk:
    """The notes name the root's inode, which a power cut of an earlier seed replaced."""
    disk = Disk(root, rules)
    disk._inodes[ROOT] = disk.root
    return disk


ROOT = 1
OLD = ("old", b"before")


def test_what_was_not_synced_may_be_gone_and_may_be_there(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "new")
    notes.note(Kind.WRITE, 7, 0, b"x" * 600)
    found = outcomes(root, notes, EXT4)
    assert (OLD,) in found
    contents = {dict(one)["new"] for one in found if len(one) == 2}
    assert contents == {b"", b"x" * 600, b"x" * 512, bytes(600)}


def test_a_synced_file_without_a_synced_name_is_there_on_ext4_only(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "new")
    notes.note(Kind.WRITE, 7, 0, b"x")
    notes.sync(7)
    assert outcomes(root, notes, EXT4) == {(("new", b"x"), OLD)}
    assert outcomes(root, notes, POSIX) == {(("new", b"x"), OLD), (OLD,)}


def test_a_synced_name_without_a_synced_file_may_be_empty(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "new")
    notes.note(Kind.WRITE, 7, 0, b"x")
    notes.sync(ROOT)
    assert outcomes(root, notes, POSIX) >= {(("new", b"x"), OLD), (("new", b""), OLD)}
    assert (OLD,) not in outcomes(root, notes, POSIX)


def test_a_file_is_replaced_as_a_whole(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "new")
    notes.note(Kind.WRITE, 7, 0, b"after")
    notes.sync(7)
    notes.rename("new", "old")
    for rules in (EXT4, POSIX):
        assert {dict(one)["old"] for one in outcomes(root, notes, rules)} == {b"before", b"after"}
    notes.sync(ROOT)
    for rules in (EXT4, POSIX):
        assert outcomes(root, notes, rules) == {(("old", b"after"),)}


def test_names_come_in_order_on_ext4_only(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "first")
    notes.create(8, "second")
    names = {rules: {tuple(name for name, _ in one) for one in outcomes(root, notes, rules)} for rules in (EXT4, POSIX)}
    assert names[EXT4] == {("old",), ("first", "old"), ("first", "old", "second")}
    assert names[POSIX] == names[EXT4] | {("old", "second")}


def test_a_sync_covers_what_was_written_before_it_started(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "new")
    notes.sync(ROOT)
    notes.note(Kind.WRITE, 7, 0, b"a")
    notes.note(Kind.SYNC_START, 7, 99)
    notes.note(Kind.WRITE, 7, 1, b"b")
    notes.note(Kind.SYNC_END, 7, 99)
    # The last is a size that arrived without its block.
    assert {dict(one)["new"] for one in outcomes(root, notes, POSIX)} == {b"a", b"ab", b"a\0"}


def test_a_sync_that_did_not_end_covers_nothing(root: Path) -> None:
    notes = Notes(root)
    notes.create(7, "new")
    notes.sync(ROOT)
    notes.note(Kind.WRITE, 7, 0, b"a")
    notes.note(Kind.SYNC_START, 7, 99)
    assert b"" in {dict(one)["new"] for one in outcomes(root, notes, EXT4)}


def test_a_removal_is_not_durable_until_its_directory_is_synced(root: Path) -> None:
    notes = Notes(root)
    notes.note(Kind.UNLINK, data=os.fsencode(root / "old"))
    assert outcomes(root, notes, EXT4) == {(), (OLD,)}
    notes.sync(ROOT)
    assert outcomes(root, notes, EXT4) == {()}


PROGRAM = """
import os, sys
root = sys.argv[1]
os.makedirs(root + "/topic")
file = os.open(root + "/topic/log", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"durable", 0)
os.write(file, b"D")
os.fdatasync(file)
for path in (root + "/topic", root):
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)
os.pwritev(file, [b" not", b" this"], 7)
other = os.open("kept", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=os.open(root, os.O_RDONLY))
os.writev(other, [b"o", b"ther"])
os.posix_fallocate(other, 0, 64)
os.ftruncate(other, 3)
with open(root + "/removed", "w") as removed:
    removed.write("text")
os.rename(root + "/removed", root + "/topic/moved")
os.replace(root + "/topic/moved", root + "/gone")
os.unlink(root + "/gone")
os.mkdir(root + "/empty")
os.rmdir(root + "/empty")
os.truncate(root + "/kept", 2)
print(open("/proc/sys/kernel/random/boot_id").read(), flush=True)
sys.stdin.read(1)
os.pwrite(file, b"too late", 0)
"""


@pytest.fixture
def layer(tmp_path: Path) -> dict[str, str]:
    """The environment of a process with the layer."""
    missing = power_missing()
    if missing is not None:
        pytest.skip(missing)
    (tmp_path / "data").mkdir()
    (tmp_path / "journal").touch()
    (tmp_path / "switch").write_bytes(SWITCH.pack(0, NEVER, 0, 0))
    (tmp_path / "boot_id").write_text("another boot")
    return {
        **os.environ,
        "LD_PRELOAD": str(build_layer(tmp_path)),
        "POWER_ROOT": str((tmp_path / "data").resolve()),
        "POWER_JOURNAL": str(tmp_path / "journal"),
        "POWER_SWITCH": str(tmp_path / "switch"),
        "POWER_BOOT_ID": str(tmp_path / "boot_id"),
    }


def set_switch(directory: Path, field: int) -> None:
    """The process has the file in its memory, so it must not be cut short."""
    with (directory / "switch").open("r+b") as file:
        file.seek(field)
        file.write(b"\1")


def test_the_layer_notes_all_that_a_process_does(tmp_path: Path, layer: dict[str, str]) -> None:
    root = (tmp_path / "data").resolve()
    disk = Disk(root, POSIX)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(root)], env=layer, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"another boot\n"
        disk.replay((tmp_path / "journal").read_bytes())
        assert disk.differences() == []
        set_switch(tmp_path, IS_CUT)
        process.stdin.write(b"x")
        process.stdin.flush()
        set_switch(tmp_path, IS_OVER)
    assert process.returncode == 137
    assert disk.differences() == [], "a write went through after the power was cut"
    assert (root / "topic" / "log").read_bytes() == b"Durable not this"
    disk.lose_power(None)
    assert [str(path.relative_to(root)) for path in sorted(root.rglob("*"))] == ["topic", "topic/log"]
    assert (root / "topic" / "log").read_bytes() == b"Durable"


def test_what_is_done_behind_the_layers_back_is_noticed(root: Path) -> None:
    disk = Disk(root, EXT4)
    (root / "old").write_bytes(b"behind")
    (root / "other").touch()
    assert len(disk.differences()) == 2


def test_the_disk_stops_after_so_many_operations(tmp_path: Path, layer: dict[str, str]) -> None:
    root = (tmp_path / "data").resolve()
    (tmp_path / "switch").write_bytes(SWITCH.pack(0, 3, 0, 0))
    program = "import os, sys\nfor n in range(9): os.mkdir(f'{sys.argv[1]}/{n}')"
    with subprocess.Popen([sys.executable, "-c", program, str(root)], env=layer) as process:
        while SWITCH.unpack((tmp_path / "switch").read_bytes())[0] == 0:
            assert process.poll() is None
        set_switch(tmp_path, IS_OVER)
    assert sorted(path.name for path in root.iterdir()) == ["0", "1", "2"]
