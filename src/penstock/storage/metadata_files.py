"""The small files that identify a data directory: meta.properties, partition.metadata, the clean-shutdown marker."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.model.ids import Uuid, format_uuid, parse_uuid
from penstock.storage.files import Filesystem
from penstock.storage.names import PARTITION_METADATA, TEMPORARY_SUFFIX

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_MARKER = ".penstock_boot"
BOOT_MARKER_BYTES = 256


class MetadataFileError(Exception):
    """One of these files has invalid content; `str()` names the file and what to do."""


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
    """The owner of a data directory, or None for a new one."""
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
        raise MetadataFileError(f"{path} has an invalid node.id or directory.id: {error}") from error


def write_partition_metadata(filesystem: Filesystem, directory: Path, topic_id: Uuid) -> None:
    """Record the topic id in a partition's directory, so that a later topic of the same name is distinguished.

    Not durable yet: the caller must call `sync_partition_metadata`.
    """
    text = f"version: 0\ntopic_id: {format_uuid(topic_id)}"
    path = directory / PARTITION_METADATA
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    filesystem.write_file(temporary, text.encode())
    filesystem.rename(temporary, path)


def sync_partition_metadata(filesystem: Filesystem, directory: Path) -> None:
    """Make a new partition's directory and first files durable, including their directory entries.

    The file is opened for it: many partitions wait long for their first record, and would hold a descriptor each.
    """
    # A power failure may have lost the file, but not records that are worth keeping.
    with contextlib.suppress(FileNotFoundError):
        filesystem.open(directory / PARTITION_METADATA).sync()
    filesystem.sync_directory(directory)
    filesystem.sync_directory(directory.parent)


def read_partition_metadata(filesystem: Filesystem, directory: Path) -> Uuid | None:
    """The topic id of a partition's directory, or None when it was never written or never became durable."""
    path = directory / PARTITION_METADATA
    try:
        # After a power failure a file may have its size but not its bytes.
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
    """Record that every log in a directory was closed cleanly; the last thing that a stopping node writes."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    filesystem.replace_file(directory / CLEAN_SHUTDOWN, content.encode())


def take_clean_shutdown(filesystem: Filesystem, directory: Path) -> bool:
    """Whether the last shutdown was clean. The marker has been removed, durably, when this returns."""
    path = directory / CLEAN_SHUTDOWN
    if not filesystem.exists(path):
        return False
    filesystem.unlink(path)
    filesystem.sync_directory(directory)
    return True


def read_clean_shutdown_epoch(filesystem: Filesystem, directory: Path) -> int:
    """The broker epoch of the last clean shutdown, -1 when it was not clean."""
    path = directory / CLEAN_SHUTDOWN
    try:
        return int(json.loads(filesystem.read_file(path))["brokerEpoch"])
    except FileNotFoundError:
        return -1
    except (ValueError, KeyError, TypeError):
        # Older Kafka versions leave the file empty; the logs are complete, only the epoch is unknown.
        return -1


class BootMarker(NamedTuple):
    """What was recorded about a directory since the machine last booted."""

    broker_epoch: int
    # Whether every log in it was opened, and so checked for data lost when the machine went down.
    is_checked: bool
    # The incarnation that is about to register. Its epoch is not known yet, `broker_epoch` is its predecessor's.
    incarnation_id: Uuid | None = None
    # Directories of the same broker that failed since it started.
    failed: tuple[Uuid, ...] = ()


def write_boot_marker(filesystem: Filesystem, directory: Path, boot_id: str, marker: BootMarker) -> None:
    """Record the incarnation that uses a directory since the last boot. Not synced: it need not survive a reboot.

    It keeps its size unless many directories have failed, and is overwritten in place: that works on a full disk as
    well, and a killed process leaves either the old or the new one.
    """
    content: dict[str, object] = {"bootId": boot_id, "brokerEpoch": marker.broker_epoch, "checked": marker.is_checked}
    if marker.incarnation_id is not None:
        content["incarnationId"] = format_uuid(marker.incarnation_id)
    if marker.failed:
        content["failed"] = [format_uuid(directory_id) for directory_id in marker.failed]
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
    """Remove the marker. Raises StorageError."""
    filesystem.unlink(directory / BOOT_MARKER)


def read_boot_marker(filesystem: Filesystem, directory: Path, boot_id: str) -> BootMarker | None:
    """What was recorded since the last boot, None when nothing was.

    A killed process has lost nothing that it wrote as long as the machine stayed up.
    """
    try:
        marker = json.loads(filesystem.read_file(directory / BOOT_MARKER))
        if not boot_id or marker["bootId"] != boot_id:
            return None
        incarnation = marker.get("incarnationId")
        return BootMarker(
            int(marker["brokerEpoch"]),
            # Markers of earlier versions lack this; those versions opened every log they could.
            bool(marker.get("checked", True)),
            parse_uuid(incarnation) if incarnation is not None else None,
            tuple(map(parse_uuid, marker.get("failed", ()))),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
