"""What is durable in a directory, from the notes of `layer.c`, and what a power cut leaves of the rest.

A file's content is durable when a sync of the file that started later has succeeded, and a name (of a new file, a
rename, a removal) when one of its directory has. What is not durable may be there or not: of a file's changes none,
all, the first few with the last one torn, or some of the blocks; of a directory's names as the rules say.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random

# Size of what follows, kind, inode, number, and nothing.
ENTRY = struct.Struct("<IIQqq")
SECTOR_BYTES = 512
BLOCK_BYTES = 4096


class Kind(IntEnum):
    """As in layer.c."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    EXTEND = 4
    MAKE_DIRECTORY = 5
    RENAME = 6
    UNLINK = 7
    REMOVE_DIRECTORY = 8
    SYNC_START = 9
    SYNC_END = 10
    UNKNOWN = 11


@dataclass(frozen=True, slots=True)
class Rules:
    """What a file system promises about names whose directory was not synced."""

    # Whether they become durable in the order of their changes, or any of them may come first.
    in_order: bool
    # Whether the sync of a file makes its name durable, and those of the directories above it.
    with_file: bool


# All that POSIX promises, and what ext4 does.
POSIX = Rules(in_order=False, with_file=False)
EXT4 = Rules(in_order=True, with_file=True)


@dataclass(frozen=True, slots=True)
class Change:
    """A write, or with `data` None a new size, to which a file is only extended unless it `cuts`."""

    moment: int
    position: int
    data: bytes | None = None
    cuts: bool = False

    def apply(self, content: bytearray) -> None:
        if self.data is not None:
            if self.position > len(content):
                content.extend(bytes(self.position - len(content)))
            content[self.position : self.position + len(self.data)] = self.data
        elif self.position > len(content):
            content.extend(bytes(self.position - len(content)))
        elif self.cuts:
            del content[self.position :]


@dataclass(slots=True, eq=False)
class File:
    """Content as programs see it, as it is durable, and the changes between the two."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change.apply(self.content)
        self.unsynced.append(change)

    def sync(self, moment: int) -> None:
        """What was noted before this moment is durable."""
        while self.unsynced and self.unsynced[0].moment < moment:
            self.unsynced.pop(0).apply(self.durable)

    def after_power_cut(self, random: Random | None) -> bytes:
        if random is None or not self.unsynced:
            return bytes(self.durable)
        kind = random.random()
        if kind < 0.3:
            return bytes(self.durable)
        if kind < 0.45:
            return bytes(self.content)
        if kind < 0.75:
            return self._first_changes(random)
        return self._some_blocks(random)

    def _first_changes(self, random: Random) -> bytes:
        kept = bytearray(self.durable)
        count = random.randrange(len(self.unsynced))
        for change in self.unsynced[:count]:
            change.apply(kept)
        torn = self.unsynced[count]
        if torn.data is not None and len(torn.data) > 1:
            end = torn.position + random.randrange(len(torn.data))
            # Disks write whole sectors.
            end = max(torn.position, end - end % SECTOR_BYTES)
            Change(0, torn.position, torn.data[: end - torn.position]).apply(kept)
        return bytes(kept)

    def _some_blocks(self, random: Random) -> bytes:
        """The size arrived, and any of the blocks."""
        kept = self.durable[: len(self.content)].ljust(len(self.content), b"\0")
        for start in range(0, len(kept), BLOCK_BYTES):
            if random.random() < 0.5:
                kept[start : start + BLOCK_BYTES] = self.content[start : start + BLOCK_BYTES]
        return bytes(kept)


@dataclass(slots=True, eq=False)
class Directory:
    """Names as programs see them, as they are durable, and the changes between the two."""

    names: dict[str, File | Directory] = field(default_factory=dict)
    durable: dict[str, File | Directory] = field(default_factory=dict)
    # A moment, and names with what they stand for afterwards.
    unsynced: list[tuple[int, dict[str, File | Directory | None]]] = field(default_factory=list)

    def change(self, moment: int, names: dict[str, File | Directory | None]) -> None:
        _apply(self.names, names)
        self.unsynced.append((moment, names))

    def sync(self, moment: int) -> None:
        """What was noted before this moment is durable."""
        while self.unsynced and self.unsynced[0][0] < moment:
            _apply(self.durable, self.unsynced.pop(0)[1])

    def after_power_cut(self, rules: Rules, random: Random | None) -> dict[str, File | Directory]:
        kept = dict(self.durable)
        if random is None:
            return kept
        count = random.choice((0, len(self.unsynced), random.randint(0, len(self.unsynced))))
        chosen = range(count) if rules.in_order else sorted(random.sample(range(len(self.unsynced)), count))
        for number in chosen:
            _apply(kept, self.unsynced[number][1])
        return kept


def _apply(names: dict[str, File | Directory], changes: dict[str, File | Directory | None]) -> None:
    for name, target in changes.items():
        if target is None:
            names.pop(name, None)
        else:
            names[name] = target


@dataclass(slots=True)
class Loss:
    """What a power cut cost."""

    names: int = 0
    files: int = 0
    bytes: int = 0


class Disk:
    """A directory from when nothing in it was unsynced, through what was noted since."""

    def __init__(self, path: Path, rules: Rules) -> None:
        self.path = path
        self._rules = rules
        self._inodes: dict[int, File | Directory] = {}
        self._above: dict[File | Directory, Directory] = {}
        self._syncs: dict[int, int] = {}
        self.syncs = 0
        self.root = self._scan(path)

    def _scan(self, path: Path) -> Directory:
        directory = Directory()
        self._inodes[path.stat().st_ino] = directory
        for entry in path.iterdir():
            found: File | Directory
            if entry.is_dir():
                found = self._scan(entry)
            else:
                content = entry.read_bytes()
                found = File(bytearray(content), bytearray(content))
                self._inodes[entry.stat().st_ino] = found
            directory.names[entry.name] = directory.durable[entry.name] = found
            self._above[found] = directory
        return directory

    def replay(self, journal: bytes) -> None:
        """Follow what was noted since this was made."""
        at = 0
        moment = 0
        while at < len(journal):
            size, kind, inode, number, _ = ENTRY.unpack_from(journal, at)
            at += ENTRY.size
            assert at + size <= len(journal), "the journal was torn"
            moment += 1
            self._replay(moment, Kind(kind), inode, number, journal[at : at + size])
            at += size

    def _replay(self, moment: int, kind: Kind, inode: int, number: int, data: bytes) -> None:
        found = self._inodes.get(inode)
        match kind:
            case Kind.CREATE:
                self._add(moment, inode, data, File())
            case Kind.MAKE_DIRECTORY:
                self._add(moment, inode, data, Directory())
            case Kind.WRITE if isinstance(found, File):
                found.change(Change(moment, number, data))
            case Kind.TRUNCATE if isinstance(found, File):
                found.change(Change(moment, number, cuts=True))
            case Kind.EXTEND if isinstance(found, File):
                found.change(Change(moment, number))
            case Kind.RENAME:
                source, _, target = data.partition(b"\0")
                self._rename(moment, source, target)
            case Kind.UNLINK | Kind.REMOVE_DIRECTORY:
                directory, name = self._place(data)
                self._forget(directory.names[name])
                directory.change(moment, {name: None})
            case Kind.SYNC_START:
                self._syncs[number] = moment
            case Kind.SYNC_END if found is not None:
                self.syncs += 1
                found.sync(self._syncs.pop(number))
                if isinstance(found, File) and self._rules.with_file:
                    self._sync_name(found)
            case Kind.UNKNOWN:
                raise AssertionError(f"the model does not know what {data.decode()} does")

    def _place(self, path: bytes) -> tuple[Directory, str]:
        parts = Path(path.decode()).relative_to(self.path).parts
        directory = self.root
        for part in parts[:-1]:
            following = directory.names[part]
            assert isinstance(following, Directory)
            directory = following
        return directory, parts[-1]

    def _add(self, moment: int, inode: int, path: bytes, made: File | Directory) -> None:
        directory, name = self._place(path)
        self._inodes[inode] = made
        self._above[made] = directory
        directory.change(moment, {name: made})

    def _rename(self, moment: int, source: bytes, target: bytes) -> None:
        (old, old_name), (new, new_name) = self._place(source), self._place(target)
        moved = old.names[old_name]
        if new_name in new.names:
            self._forget(new.names[new_name])
        if old is new:
            old.change(moment, {old_name: None, new_name: moved})
        else:
            new.change(moment, {new_name: moved})
            old.change(moment, {old_name: None})
        self._above[moved] = new

    def _forget(self, gone: File | Directory) -> None:
        """Its inode's number may be another file's soon."""
        for inode, found in list(self._inodes.items()):
            if found is gone:
                del self._inodes[inode]

    def _sync_name(self, one: File | Directory) -> None:
        directory = self._above.get(one)
        if directory is None:
            return
        named = [moment for moment, names in directory.unsynced if one in names.values()]
        if named:
            directory.sync(named[-1] + 1)
        self._sync_name(directory)

    def differences(self) -> list[str]:
        """How the directory differs from what the notes make of it: nothing may be done behind the layer's back."""
        return list(_differences(self.root, self.path))

    def lose_power(self, random: Random | None) -> Loss:
        """Put what the power cut leaves in the directory's place: what is durable and, by chance, more."""
        loss = Loss()
        shutil.rmtree(self.path)
        self.path.mkdir()
        self._write(self.root, self.path, random, loss)
        return loss

    def _write(self, directory: Directory, path: Path, random: Random | None, loss: Loss) -> None:
        kept = directory.after_power_cut(self._rules, random)
        loss.names += len(kept.keys() ^ directory.names.keys())
        for name, one in kept.items():
            if isinstance(one, Directory):
                (path / name).mkdir()
                self._write(one, path / name, random, loss)
            else:
                content = one.after_power_cut(random)
                loss.files += content != one.content
                loss.bytes += max(0, len(one.content) - len(content))
                (path / name).write_bytes(content)


def _differences(directory: Directory, path: Path) -> Iterator[str]:
    found = {entry.name: entry for entry in path.iterdir()}
    for name in sorted(found.keys() ^ directory.names.keys()):
        yield f"{path / name} is {'not noted' if name in found else 'not there'}"
    for name, one in directory.names.items():
        entry = found.get(name)
        if entry is None:
            continue
        if isinstance(one, Directory):
            yield from _differences(one, entry)
        elif entry.read_bytes() != one.content:
            yield f"{entry} has another content than was noted"
