"""What happens to the files of a node that is down: bits flip, files are cut short, directories are removed."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

from penstock.storage.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from penstock.storage.names import LOG_SUFFIX, offset_of, parse_partition_directory
from penstock.wire.kernel import scan_batches
from sim.disk import DATA, MORE_DATA, Directory, Inode
from sim.machine import METADATA_DIRECTORY, Machine
from sim.world import TOPIC

SNAPSHOT_SUFFIX = ".checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS)
# Where a batch has its length, and what its structure and its checksum say is wrong when it is.
_LENGTH_AT = 8
_CHECKED_FROM = 16


def _data_directory(machine: Machine, name: str = DATA) -> Directory:
    found = machine.disk.root.entries[name]
    assert isinstance(found, Directory)
    return found


def flip_a_bit(machine: Machine, random: Random) -> tuple[str, Inode] | None:
    """Damage the length of a durable batch where recovery reads it; returns the replica and its file, if there is one.

    What was never durable is left alone: that a disk loses it while its machine stays up is no promise of this code.
    """
    filesystem = machine.filesystem()
    try:
        recovery_points = read_offsets(filesystem, Path("/") / DATA / RECOVERY_POINTS)
    except FileNotFoundError:
        return None
    found = []
    for name, entry in sorted(_data_directory(machine).entries.items()):
        partition = parse_partition_directory(name)
        if partition is None or partition.topic != TOPIC or not isinstance(entry, Directory):
            continue
        recovery_point = recovery_points.get(partition, 0)
        bases = sorted(base for file in entry.entries if (base := offset_of(file, LOG_SUFFIX)) is not None)
        # Recovery begins with the last segment that begins at or before the recovery point.
        bases = [base for base in bases if base < recovery_point]
        if not bases or not recovery_point:
            continue
        log = entry.entries[f"{bases[-1]:020d}{LOG_SUFFIX}"]
        if isinstance(log, Inode) and len(log.data) > _LENGTH_AT + 4:
            found.append((name, log))
    if not found:
        return None
    name, log = random.choice(found)
    (length,) = struct.unpack_from(">i", log.data, _LENGTH_AT)
    for data in (log.data, log.durable):
        if len(data) > _LENGTH_AT + 4:
            struct.pack_into(">i", data, _LENGTH_AT, length ^ (1 << random.choice((12, 20, 30))))
    return name, log


def rot(machine: Machine, random: Random) -> str | None:
    """Flip a bit of a durable batch in a closed segment; returns the file, None if there is none.

    The offset and the leader epoch of a batch are left alone, which its checksum does not cover.
    """
    found = []
    for name, entry in sorted(_data_directory(machine).entries.items()):
        partition = parse_partition_directory(name)
        if partition is None or partition.topic != TOPIC or not isinstance(entry, Directory):
            continue
        bases = sorted(base for file in entry.entries if (base := offset_of(file, LOG_SUFFIX)) is not None)
        for base in bases[:-1]:
            log = entry.entries[f"{base:020d}{LOG_SUFFIX}"]
            if isinstance(log, Inode) and log.durable:
                found.append((f"{name}/{base}", log))
    if not found:
        return None
    name, log = random.choice(found)
    batches = scan_batches(bytes(log.durable), 0, len(log.durable), check_crc=True).batches
    if not batches:
        return None
    position, size, *_ = random.choice(batches)
    position += random.choice((_LENGTH_AT + 2, random.randrange(_CHECKED_FROM, size)))
    bit = 1 << random.randrange(8)
    for data in (log.data, log.durable):
        data[position] ^= bit
    return name


def remove_replica(machine: Machine, name: str, log: Inode) -> None:
    """Remove a replica's directory with a damaged file, as an operator does whose replica cannot be opened."""
    for parent in (DATA, MORE_DATA):
        directory = _data_directory(machine, parent)
        replica = directory.entries.get(name)
        # The node may have replaced it by itself.
        if isinstance(replica, Directory) and any(file is log for file in replica.entries.values()):
            directory.change({name: None})
            directory.sync()


def remove_replicas(machine: Machine) -> None:
    """Remove all replicas, as a power failure may do before anything was synced."""
    for parent in (DATA, MORE_DATA):
        directory = _data_directory(machine, parent)
        for name in filter(parse_partition_directory, list(directory.entries)):
            if name != METADATA_DIRECTORY:
                directory.change({name: None})
        directory.sync()


def cut_short(machine: Machine, random: Random, *, snapshot: bool) -> tuple[Inode, bytes] | None:
    """Cut the newest metadata snapshot or a checkpoint file; returns it with what it had, None if there is none."""
    directory = _data_directory(machine)
    if snapshot:
        metadata = directory.entries.get(METADATA_DIRECTORY)
        assert isinstance(metadata, Directory)
        names = [name for name in metadata.entries if name.endswith(SNAPSHOT_SUFFIX)]
        found = metadata.entries[max(names)] if names else None
    else:
        found = directory.entries.get(random.choice(CHECKPOINTS))
    if not isinstance(found, Inode) or not found.data:
        return None
    whole = bytes(found.data)
    set_content(found, whole[: random.randrange(len(whole))])
    return found, whole


def set_content(inode: Inode, content: bytes) -> None:
    """Give a file durable content."""
    inode.data[:] = content
    inode.sync_all()
