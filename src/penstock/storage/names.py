"""File and directory names inside a data directory, as Kafka spells them."""

from __future__ import annotations

import re

from penstock.model.ids import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_OFFSET_DIGITS = 20
NAME_BYTES_MAX = 255

STRAY_SUFFIX = "-stray"

_DELETION_DIRECTORY = re.compile(r"\.[0-9a-f]{32}-delete$")
_FUTURE_DIRECTORY = re.compile(r"^(?P<name>.+)\.[0-9a-f]{32}-future$")
_PARTITION_DIRECTORY = re.compile(r"^(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10})$")


def file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for offset 42 and suffix `.log`."""
    return f"{offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file name with exactly this suffix, or None for any other name."""
    stem = name.removesuffix(suffix)
    if len(stem) != _OFFSET_DIGITS or len(name) != _OFFSET_DIGITS + len(suffix) or not stem.isdecimal():
        return None
    return int(stem)


def deletion_directory_name(directory_name: str, unique: bytes) -> str:
    """The name of a partition's directory before it is removed; `unique` is sixteen random bytes.

    Long topic names are shortened so that the result stays within the 255 bytes a file system allows.
    """
    suffix = f".{unique.hex()}-delete"
    assert len(unique) == 16
    return directory_name[: NAME_BYTES_MAX - len(suffix)] + suffix


def stray_directory_name(directory_name: str, unique: bytes) -> str:
    """The name under which a partition's directory is kept that is not used any more, shortened in the same way."""
    suffix = f".{unique.hex()}{STRAY_SUFFIX}"
    assert len(unique) == 16
    return directory_name[: NAME_BYTES_MAX - len(suffix)] + suffix


def is_deletion_directory(name: str) -> bool:
    """True for a directory that was being deleted when the process stopped."""
    return _DELETION_DIRECTORY.search(name) is not None


def future_directory_name(directory_name: str, unique: bytes) -> str:
    """The name of a partition's directory while it is filled from one in another data directory.

    Longer than NAME_BYTES_MAX for a very long topic name: that one cannot be moved.
    """
    assert len(unique) == 16
    return f"{directory_name}.{unique.hex()}-future"


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition that a directory is being filled for, or None for any other name."""
    match = _FUTURE_DIRECTORY.match(name)
    return parse_partition_directory(match["name"]) if match is not None else None


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition a directory belongs to, or None when the name is not `topic-partition`."""
    match = _PARTITION_DIRECTORY.match(name)
    if match is None:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))
