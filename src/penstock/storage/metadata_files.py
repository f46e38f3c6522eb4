"""The small files that say whose a data directory is: meta.properties, partition.metadata, the clean-stop marker."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.model.ids import Uuid, format_uuid, parse_uuid
from penstock.storage.files import Filesystem, StorageError
from penstock.storage.names import PARTITION_METADATA, TEMPORARY_SUFFIX

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_MARKER = ".penstock_boot"
BOOT_MARKER_BYTES = 256


class MetadataFileError(Exception):
    """One of these files says something that cannot be true; `str()` names the file and what to do."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Which cluster and node a data directory belongs to."""

    cluster_id: str
    node_id: int
    directory_id: Uuid


def write_meta_properties(filesystem: Filesystem, directory: Path, properties: MetaProperties) -> None:
    text = (
        "#\n"
        f"cluster.id={properties.cluster_id}\n"
        f"directory.id={format_uuid(properties.directory_id)}\n"
        f"node.id={properties.node_id}\n"
        "version=1\n"
    )
    filesystem.replace_file(directory / META_PROPERTIES, text.encode())


def read_meta_properties(filesystem: Filesystem, directory: Path) -> MetaProperties | None:
    """Who owns a data directory, or None for a fresh one."""
    path = directory / META_PROPERTIES
    try:
        text = filesystem.read_file(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise MetadataFileError(f"{path} is not text; restore it from a backup") from error
    values: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    if values.get("version") != "1":
        raise MetadataFileError(f"{path} has version {values.get('version')!r}; only version 1 (KRaft) is understood")
    try:
        return MetaProperties(values["cluster.id"], int(values["node.id"]), parse_uuid(values["directory.id"]))
    except KeyError as error:
        raise MetadataFileError(f"{path} lacks {error.args[0]}; restore it from a backup") from error
    except ValueError as error:
        raise MetadataFileError(f"{path} has a node.id or directory.id that is none: {error}") from error


def write_partition_metadata(filesystem: Filesystem, directory: Path, topic_id: Uuid) -> None:
    """Note in a partition's directory which topic it belongs to, so that a namesake created later is not mistaken.

    Not durable yet: the caller owes `sync_partition_metadata`.
    """
    text = f"version: 0\ntopic_id: {format_uuid(topic_id)}"
    path = directory / PARTITION_METADATA
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    filesystem.write_file(temporary, text.encode())
    filesystem.rename(temporary, path)


def sync_partition_metadata(filesystem: Filesystem, directory: Path) -> None:
    """Make what a new partition's directory begins with durable, and the entries that lead there.

    The file is opened for it: many partitions wait long for their first record, and would hold a descriptor each.
    """
    # A power cut may have taken the file, and left records that are worth keeping.
    with contextlib.suppress(FileNotFoundError):
        filesystem.open(directory / PARTITION_METADATA).sync()
    filesystem.sync_directory(directory)
    filesystem.sync_directory(directory.parent)


def read_partition_metadata(filesystem: Filesystem, directory: Path) -> Uuid | None:
    """The topic id of a partition's directory, or None when it was never written or never became durable."""
    path = directory / PARTITION_METADATA
    try:
        # After a power cut a file may have its size and none of its bytes.
        lines = filesystem.read_file(path).strip(b"\0").decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines:
        return None
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    if values.get("version") != "0" or "topic_id" not in values:
        raise MetadataFileError(f"{path} is damaged: expected 'version: 0' and 'topic_id: …'")
    try:
        return parse_uuid(values["topic_id"].strip())
    except ValueError as error:
        raise MetadataFileError(f"{path}: {error}") from error


def write_clean_shutdown(filesystem: Filesystem, directory: Path, broker_epoch: int) -> None:
    """Say that every log below was closed cleanly. The last thing a stopping node writes."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    filesystem.replace_file(directory / CLEAN_SHUTDOWN, content.encode())


def take_clean_shutdown(filesystem: Filesystem, directory: Path) -> bool:
    """True when the last stop was clean. The marker is gone, durably, by the time this returns."""
    path = directory / CLEAN_SHUTDOWN
    if not filesystem.exists(path):
        return False
    filesystem.unlink(path)
    filesystem.sync_directory(directory)
    return True


def read_clean_shutdown_epoch(filesystem: Filesystem, directory: Path) -> int:
    """The broker epoch that the last clean stop noted, -1 when the last stop was not clean."""
    path = directory / CLEAN_SHUTDOWN
    try:
        return int(json.loads(filesystem.read_file(path))["brokerEpoch"])
    except FileNotFoundError:
        return -1
    except (ValueError, KeyError, TypeError):
        # Older Kafka versions leave the file empty; the logs are whole, only the epoch is not known.
        return -1


class BootMarker(NamedTuple):
    """What was noted of a directory since the machine was last started."""

    broker_epoch: int
    # Whether every log in it was opened, and so checked for what the machine's last stop may have taken.
    is_checked: bool
    # The incarnation that is about to register. Its epoch is not known yet, `broker_epoch` is its predecessor's.
    incarnation_id: Uuid | None = None


def write_boot_marker(filesystem: Filesystem, directory: Path, boot_id: str, marker: BootMarker) -> None:
    """Note who uses a directory since which start of the machine. It need not outlive that: so it is not synced.

    It always has the same size, and is written over where it is: that works on a full disk as well, and a process that
    is killed leaves the one or the other.
    """
    content = {"bootId": boot_id, "brokerEpoch": marker.broker_epoch, "checked": marker.is_checked}
    if marker.incarnation_id is not None:
        content["incarnationId"] = format_uuid(marker.incarnation_id)
    data = json.dumps(content).encode().ljust(BOOT_MARKER_BYTES)
    path = directory / BOOT_MARKER
    try:
        present = filesystem.open(path)
    except FileNotFoundError:
        present = None
    if present is not None and present.size == len(data):
        present.overwrite(data)
        return
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    filesystem.write_file(temporary, data)
    filesystem.rename(temporary, path)


def remove_boot_marker(filesystem: Filesystem, directory: Path) -> None:
    """Forget what was noted of a directory, as far as its disk lets us."""
    with contextlib.suppress(StorageError):
        filesystem.unlink(directory / BOOT_MARKER)


def read_boot_marker(filesystem: Filesystem, directory: Path, boot_id: str) -> BootMarker | None:
    """What was noted since this start of the machine, None when nothing was.

    A process that was killed has lost nothing that it wrote as long as the machine went on.
    """
    try:
        marker = json.loads(filesystem.read_file(directory / BOOT_MARKER))
        if not boot_id or marker["bootId"] != boot_id:
            return None
        incarnation = marker.get("incarnationId")
        return BootMarker(
            int(marker["brokerEpoch"]),
            # Markers of earlier versions do not say it; those opened every log they could.
            bool(marker.get("checked", True)),
            parse_uuid(incarnation) if incarnation is not None else None,
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
