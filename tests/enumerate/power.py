"""Which states a power cut may leave: a bounded part of them, the same every time.

Of a file that was not synced: what was, all of it, its first writes, a block or a write that is torn, and the new size
with zeros for content. Of a directory: some number of the first changes since its last sync. All combinations would be
far too many. Each of these is combined with the two extremes of all others: nothing of them arrived, or everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from enumerate.disk import copy_disk
from penstock.runtime.raft.metadata_files import QUORUM_STATE
from penstock.storage.metadata_files import BOOT_MARKER, CLEAN_SHUTDOWN, META_PROPERTIES
from penstock.storage.names import LOG_SUFFIX, PARTITION_METADATA, TEMPORARY_SUFFIX
from sim.disk import BLOCK_BYTES, Directory, Inode, SimDisk, _apply

# Files that never grow out of their first block: disks write that whole.
ONE_BLOCK = frozenset((PARTITION_METADATA, META_PROPERTIES, CLEAN_SHUTDOWN, BOOT_MARKER, QUORUM_STATE))
CUTS_MAX = 6
PREFIXES_MAX = 12

Choice = dict[int, int]


def leftovers(disk: SimDisk) -> Iterator[tuple[str, SimDisk]]:
    """The disks that a power cut now may leave, each with what became of it."""
    dirty = _Dirty(disk)
    seen: set[bytes] = set()
    for name, files, directories in dirty.choices():
        left = dirty.resolve(files, directories)
        known = fingerprint(left)
        if known not in seen:
            seen.add(known)
            yield name, left


class _Dirty:
    """What of a disk is not synced, in a fixed order."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.files: list[tuple[str, Inode]] = []
        self.directories: list[tuple[str, Directory]] = []
        self._seen: set[int] = set()
        self._visit("", disk.root)
        self.contents = [list(_contents(path, inode)) for path, inode in self.files]

    def _visit(self, path: str, node: Inode | Directory) -> None:
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, Inode):
            if node.dirty_from is not None:
                self.files.append((path, node))
            return
        if node.unsynced:
            self.directories.append((path or "/", node))
        # A file may be there before a change, between two changes, or after all of them.
        states = [node.durable, *node.unsynced, node.entries]
        found = [(name, entry) for state in states for name, entry in state.items() if entry is not None]
        for name, entry in sorted(found, key=lambda one: one[0]):
            self._visit(f"{path}/{name}", entry)

    def choices(self) -> Iterator[tuple[str, Choice, Choice]]:
        nothing: Choice = dict.fromkeys(range(len(self.files)), 0)
        everything: Choice = dict.fromkeys(range(len(self.files)), 1)
        extremes = (("no file", nothing), ("all files", everything))
        undone: Choice = dict.fromkeys(range(len(self.directories)), 0)
        done: Choice = {number: len(one.unsynced) for number, (_, one) in enumerate(self.directories)}
        ends = (("no names", undone), ("all names", done))
        for file_name, files in extremes:
            for name, directories in ends:
                yield f"{file_name}, {name}", files, directories
        for number, (path, directory) in enumerate(self.directories):
            for count in _spread(len(directory.unsynced)):
                for (file_name, files), (name, directories) in zip(extremes, ends, strict=True):
                    text = f"{file_name}, {count} of {len(directory.unsynced)} changes of {path}, else {name}"
                    yield text, files, {**directories, number: count}
                yield (
                    f"all files, {count} of {len(directory.unsynced)} changes of {path}",
                    everything,
                    {**undone, number: count},
                )
        for number, (path, _) in enumerate(self.files):
            for choice in range(2, len(self.contents[number])):
                for file_name, files in extremes:
                    text = f"{self.contents[number][choice][0]} of {path}, else {file_name}, all names"
                    yield text, {**files, number: choice}, done

    def resolve(self, files: Choice, directories: Choice) -> SimDisk:
        """The disk that is left when so much has arrived."""
        contents = {id(self.files[number][1]): self.contents[number][choice][1] for number, choice in files.items()}
        counts = {id(self.directories[number][1]): count for number, count in directories.items()}
        left = SimDisk()
        root = _resolved(self.disk.root, contents, counts, {})
        assert isinstance(root, Directory)
        left.root = root
        return left


def _spread(count: int) -> list[int]:
    if count <= PREFIXES_MAX:
        return list(range(count + 1))
    return sorted({number * count // PREFIXES_MAX for number in range(PREFIXES_MAX + 1)})


def _contents(path: str, inode: Inode) -> Iterator[tuple[str, bytes]]:
    """What may be left of a file; the first is what was synced, the second everything."""
    start = inode.dirty_from
    assert start is not None
    yield "synced bytes", bytes(inode.durable)
    yield "all bytes", bytes(inode.data)
    size = len(inode.data)
    if size <= start:
        # Only truncated: file systems make that happen as a whole.
        return
    ends = [position for position in inode.writes if start < position < size]
    blocks = list(range(start - start % BLOCK_BYTES + BLOCK_BYTES, size, BLOCK_BYTES))
    last = max(ends, default=start)
    # What is in one block here is in two in a larger file.
    torn = [] if path.rpartition("/")[2].removesuffix(TEMPORARY_SUFFIX) in ONE_BLOCK else [(last + size) // 2, size - 1]
    cuts = sorted({cut for cut in (start, *ends, *blocks, *torn) if cut < size})
    if len(cuts) > CUTS_MAX:
        cuts = sorted({cuts[number * (len(cuts) - 1) // (CUTS_MAX - 1)] for number in range(CUTS_MAX)})
    for cut in cuts:
        yield f"{cut} of {size} bytes", bytes(inode.data[:cut])
    for cut in sorted({start, last, *blocks[-1:]}):
        yield f"{cut} bytes and {size - cut} zeros", bytes(inode.data[:cut]) + bytes(size - cut)


def _resolved(
    node: Inode | Directory, contents: dict[int, bytes], counts: dict[int, int], done: dict[int, Inode | Directory]
) -> Inode | Directory:
    if id(node) in done:
        return done[id(node)]
    if isinstance(node, Inode):
        inode = done[id(node)] = Inode()
        data = contents.get(id(node), bytes(node.data))
        inode.data, inode.durable, inode.modified_ms = bytearray(data), bytearray(data), node.modified_ms
        return inode
    directory = done[id(node)] = Directory()
    entries = dict(node.durable)
    for change in node.unsynced[: counts.get(id(node), 0)]:
        _apply(entries, change)
    directory.entries = {name: _resolved(entry, contents, counts, done) for name, entry in entries.items()}
    directory.durable = dict(directory.entries)
    return directory


def lose_unsynced(disk: SimDisk, name: str | None = None) -> SimDisk:
    """A power cut that leaves only what was synced; or that of one directory alone."""
    copy = copy_disk(disk)
    node: Inode | Directory = copy.root if name is None else copy.root.entries[name]
    assert isinstance(node, Directory)
    left = _resolved(node, _durable_contents(node), {}, {})
    assert isinstance(left, Directory)
    if name is None:
        copy.root = left
    else:
        copy.root.entries[name] = copy.root.durable[name] = left
    return copy


def lose_records(disk: SimDisk, name: str) -> SimDisk:
    """A directory whose disk lost the unsynced part of its logs alone; small files and names have arrived."""
    copy = copy_disk(disk)
    found = copy.root.entries[name]
    assert isinstance(found, Directory)
    _lose_records("", found)
    return copy


def _lose_records(path: str, node: Inode | Directory) -> None:
    if isinstance(node, Directory):
        node.sync()
        for name, entry in node.entries.items():
            _lose_records(name, entry)
    elif path.endswith(LOG_SUFFIX):
        node.data = bytearray(node.durable)
        node.dirty_from = None
    else:
        node.sync()


def _durable_contents(node: Inode | Directory) -> dict[int, bytes]:
    if isinstance(node, Inode):
        return {id(node): bytes(node.durable)}
    found: dict[int, bytes] = {}
    for entry in node.durable.values():
        found.update(_durable_contents(entry))
    return found


def fingerprint(disk: SimDisk) -> bytes:
    """The same for disks that are the same, now and after any power cut."""
    hashed = blake2b(digest_size=16)
    _hash(disk.root, hashed)
    return hashed.digest()


def _hash(node: Inode | Directory, hashed: blake2b) -> None:
    if isinstance(node, Inode):
        hashed.update(b"f%d %d " % (len(node.data), -1 if node.dirty_from is None else node.dirty_from))
        hashed.update(node.data)
        if node.durable != node.data:
            hashed.update(b"d%d " % len(node.durable))
            hashed.update(node.durable)
        return
    hashed.update(b"n%d %d " % (len(node.entries), len(node.unsynced)))
    for name in sorted(node.entries):
        hashed.update(name.encode() + b"=")
        _hash(node.entries[name], hashed)
    if node.unsynced:
        hashed.update(b"durable")
        for name in sorted(node.durable):
            hashed.update(name.encode() + b"=")
            _hash(node.durable[name], hashed)
