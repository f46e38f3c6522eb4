"""Kafka's text checkpoints: a version, a count, and one line per entry.

A data directory has four of them (recovery points, log start offsets, high watermarks, and how far logs are
compacted), each a map from partition to offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.model.ids import TopicPartition
from penstock.storage.files import Filesystem

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
# Where the search for damage continues: one partition and offset. Kafka has no such file.
SCRUB_OFFSET = "scrub-offset-checkpoint"

_VERSION = 0


class CheckpointError(Exception):
    """A checkpoint file that is incomplete, or not in Kafka's format."""


def render_checkpoint(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(lines)), *lines)).encode()


def parse_checkpoint(data: bytes) -> list[str]:
    """The entry lines of a checkpoint; an empty file has none."""
    if not data:
        return []
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError("it is not text") from error
    if lines[0].strip() != str(_VERSION):
        raise CheckpointError(f"unknown version {lines[0][:20]!r}")
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(lines) - 2:
        raise CheckpointError(f"{len(lines) - 2} entries where it announces {lines[1][:20] if lines[1:] else 'none'!r}")
    return lines[2:]


def write_offsets(filesystem: Filesystem, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Durably replace an offset checkpoint."""
    lines = [f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items()]
    filesystem.replace_file(path, render_checkpoint(lines))


def read_offsets(filesystem: Filesystem, path: Path) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; a missing file is an empty one, a damaged one raises CheckpointError."""
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return {}
    offsets: dict[TopicPartition, int] = {}
    for line in parse_checkpoint(data):
        parts = line.split()
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise CheckpointError(f"{path}: {line!r} is not a topic, a partition and an offset")
        offsets[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    return offsets
