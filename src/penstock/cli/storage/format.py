"""Formats directories: `meta.properties`, and the first voters of a dynamic quorum.

The formats are Kafka's: `meta.properties` version 1, and for a dynamic quorum (KIP-853) the snapshot at offset 0 that
lists its voters.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.failures import CommandFailure
from penstock.config.listeners import parse_endpoint
from penstock.config.node import NodeSettings
from penstock.core.metadata.scram_credentials import PEPPER_BYTES, pepper_record
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid, format_uuid, parse_uuid
from penstock.runtime.raft.metadata_files import SnapshotId, encode_control, write_bootstrap
from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import (
    MetadataFileError,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.wire import codec
from penstock.wire.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from penstock.wire.messages.metadata_records import UserScramCredentialRecord
from penstock.wire.records import ControlType, Record, build_batch, control_key

METADATA_PARTITION = "__cluster_metadata-0"
BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)
# The directory ids from 0 to this one are reserved.
RESERVED_IDS = 100


@dataclass(frozen=True, slots=True)
class InitialController:
    """A voter of the first quorum: `id@host:port:directory-id`."""

    node_id: int
    host: str
    port: int
    directory_id: Uuid


def random_uuid() -> Uuid:
    """Sixteen random bytes whose text form does not begin with a dash."""
    while True:
        value = secrets.token_bytes(16)
        if value not in (ZERO_UUID, METADATA_TOPIC_ID) and not format_uuid(value).startswith("-"):
            return value


def parse_initial_controllers(text: str) -> list[InitialController]:
    """Parse Kafka's list of `id@host:port:directory-id`."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        number, _, rest = item.partition("@")
        address, _, directory = rest.rpartition(":")
        endpoint = parse_endpoint(address)
        try:
            directory_id = parse_uuid(directory)
        except ValueError:
            directory_id = ZERO_UUID
        if not number.isdigit() or endpoint is None or int.from_bytes(directory_id) < RESERVED_IDS:
            raise CommandFailure(
                f"{item!r} is not a controller",
                "each is id@host:port:directory-id",
                f"for example 1@localhost:9093:{format_uuid(random_uuid())}; "
                "`penstock storage random-uuid` creates directory ids",
            )
        found.append(InitialController(int(number), endpoint.host, endpoint.port, directory_id))
    if len({one.node_id for one in found}) != len(found) or not found:
        raise CommandFailure(
            f"--initial-controllers {text!r} names a node twice, or none", "each controller is named once"
        )
    return found


def standalone_controller(settings: NodeSettings) -> InitialController:
    """This node as the only voter of a new quorum."""
    if not settings.is_controller:
        raise CommandFailure(
            "--standalone is for controllers, which this node is not",
            f"process.roles is {','.join(sorted(settings.roles))}",
            "use it for the first controller, not for brokers",
        )
    names = settings.controller_listener_names
    listener = next(one for one in settings.advertised_listeners if one.name in names)
    return InitialController(settings.node_id, listener.host or "localhost", listener.port, random_uuid())


def read_directories(settings: NodeSettings) -> Mapping[Path, MetaProperties | None]:
    """The owner of each directory, the metadata log's among them; None if it is not formatted.

    Raises CommandFailure for a damaged one.
    """
    filesystem = OsFilesystem()
    directories = map(Path, dict.fromkeys((*settings.log_dirs, settings.metadata_log_dir)))
    try:
        return {path: read_meta_properties(filesystem, path) for path in directories}
    except (MetadataFileError, OSError) as error:
        raise CommandFailure("a data directory cannot be read", str(error)) from None


def format_directories(
    settings: NodeSettings,
    cluster_id: str,
    controllers: Sequence[InitialController],
    ignore_formatted: bool,
    users: Sequence[UserScramCredentialRecord] = (),
) -> list[Path]:
    """Format each unformatted directory and return those. If it raises CommandFailure, nothing was written.

    `users` are the initial SCRAM users.
    """
    known = read_directories(settings)
    _check_known(settings, known, cluster_id, ignore_formatted)
    fresh = [path for path, present in known.items() if present is None]
    own = {one.node_id: one.directory_id for one in controllers}.get(settings.node_id)
    metadata = Path(settings.metadata_log_dir)
    filesystem = OsFilesystem()
    try:
        for path in fresh:
            path.mkdir(parents=True, exist_ok=True)
            if path == metadata and controllers:
                (path / METADATA_PARTITION).mkdir(exist_ok=True)
                snapshot = path / METADATA_PARTITION / BOOTSTRAP_SNAPSHOT.file_name
                name = settings.controller_listener_names[0]
                filesystem.replace_file(snapshot, voters_snapshot(controllers, name, time.time_ns() // 1_000_000))
            if path == metadata and users:
                pepper = pepper_record(secrets.token_bytes(PEPPER_BYTES))
                write_bootstrap(filesystem, path, [*users, pepper], time.time_ns() // 1_000_000)
            directory_id = own if path == metadata and own is not None else random_uuid()
            # Written last, because it marks the directory as complete.
            write_meta_properties(filesystem, path, MetaProperties(cluster_id, settings.node_id, directory_id))
    except OSError as error:
        raise CommandFailure(
            "a data directory cannot be formatted", str(error), "check that this user may write there"
        ) from None
    return fresh


def _check_known(
    settings: NodeSettings, known: Mapping[Path, MetaProperties | None], cluster_id: str, ignore_formatted: bool
) -> None:
    for path, present in known.items():
        if present is None:
            continue
        if present.cluster_id != cluster_id or present.node_id != settings.node_id:
            raise CommandFailure(
                f"{path} belongs to node {present.node_id} of cluster {present.cluster_id}",
                f"it cannot be formatted for node {settings.node_id} of cluster {cluster_id}",
                "point log.dirs at an empty directory, or empty this one if its data is not needed",
            )
        if not ignore_formatted:
            raise CommandFailure(
                f"{path} is already formatted", "formatting it again could hide its data", "add --ignore-formatted"
            )


def voters_snapshot(controllers: Sequence[InitialController], listener_name: str, now_ms: int) -> bytes:
    """The initial snapshot of a quorum with these voters."""
    voters = [
        VotersRecordVoter(
            voter_id=one.node_id,
            voter_directory_id=one.directory_id,
            endpoints=[Endpoint(listener_name, one.host, one.port)],
            kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        for one in sorted(controllers, key=lambda one: one.node_id)
    ]
    messages = (
        (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms)),
        (ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=1)),
        (ControlType.KRAFT_VOTERS, VotersRecord(version=0, voters=voters)),
    )
    records = [
        Record(offset, now_ms, control_key(kind), codec.encode(message, 0))
        for offset, (kind, message) in enumerate(messages)
    ]
    opening = build_batch(records, base_offset=0, leader_epoch=0, control=True)
    footer = SnapshotFooterRecord(version=0)
    return opening + encode_control(ControlType.SNAPSHOT_FOOTER, footer, len(records), 0, now_ms)
