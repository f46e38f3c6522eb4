"""The metadata log's own files beside its segments: quorum-state, and snapshots of the image.

A snapshot `<end offset>-<epoch>.checkpoint` is a file of record batches: a header control record, the image's records,
a footer control record. It is written under another name and renamed when it is complete and synced, so an existing
snapshot is complete; one that fails its checks was damaged later and nothing is read from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from penstock.core.raft.events import Election
from penstock.core.raft.voters import VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, format_uuid, parse_uuid
from penstock.runtime.raft.control_records import (
    BATCH_BYTES_MAX,
    Control,
    control_batch,
    read_controls,
    snapshot_footer,
    snapshot_header,
)
from penstock.storage.files import File, Filesystem
from penstock.storage.names import LOG_SUFFIX, TEMPORARY_SUFFIX
from penstock.wire.frame import decode_metadata_record, encode_metadata_record
from penstock.wire.kernel import scan_batches
from penstock.wire.records import (
    ControlType,
    Record,
    build_batch,
    check_crc,
    control_type,
    read_header,
    read_records,
)

QUORUM_STATE = "quorum-state"
SNAPSHOT_SUFFIX = ".checkpoint"
# A leader's snapshot that is being downloaded.
PART_SUFFIX = ".part"
# A complete snapshot of a leader, while the log it replaces may still exist.
PENDING_SUFFIX = ".pending"
RECORDS_PER_BATCH = 1000
BLOCK_BYTES = 512
RESTORE = "nothing was changed. Restore the metadata directory from a backup or from another controller before starting"

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

# The version of each record that Kafka writes, where it is not 0.
RECORD_VERSIONS = {
    "RegisterBrokerRecord": 3,
    "PartitionRecord": 2,
    "PartitionChangeRecord": 2,
    "BrokerRegistrationChangeRecord": 2,
}
# Nodes of before metadata version 30 cannot read these, and no such record names cordoned directories.
CORDONED_RECORD_VERSIONS = {"RegisterBrokerRecord": 4, "BrokerRegistrationChangeRecord": 3}


class DamagedMetadata(Exception):
    """The metadata log or a snapshot is damaged. Nothing was changed; an operator must decide."""


class SnapshotId(NamedTuple):
    """The end of a snapshot: the offset after its last record, and that record's epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SNAPSHOT_SUFFIX}"


BOOTSTRAP_FILE = "bootstrap.checkpoint"


def read_election(filesystem: Filesystem, directory: Path) -> Election | None:
    """The persisted epoch and vote; a new directory has none."""
    path = directory / QUORUM_STATE
    try:
        text = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    try:
        state = json.loads(text)
        voted_directory = parse_uuid(state["votedDirectoryId"]) if "votedDirectoryId" in state else ZERO_UUID
        return Election(int(state["leaderEpoch"]), int(state["leaderId"]), int(state["votedId"]), voted_directory)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedMetadata(f"{path} is damaged ({error}); {RESTORE}") from error


def write_election(
    filesystem: Filesystem, directory: Path, election: Election, voters: Iterable[int], kraft_version: int = 0
) -> None:
    """Persist epoch and vote, durably, before any other node learns of them."""
    known: dict[str, object] = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
    }
    if kraft_version:
        state = known | {"votedDirectoryId": format_uuid(election.voted_directory_id), "data_version": 1}
    else:
        named = [{"voterId": voter} for voter in voters]
        state = {"clusterId": "", **known, "appliedOffset": 0, "currentVoters": named, "data_version": 0}
    filesystem.replace_file(directory / QUORUM_STATE, json.dumps(state).encode())


def list_snapshots(filesystem: Filesystem, directory: Path) -> list[SnapshotId]:
    """All snapshots, the one with the largest end offset last."""
    return _named(filesystem.list_directory(directory))


def list_pending(filesystem: Filesystem, directory: Path) -> list[SnapshotId]:
    """The leader's snapshots that are complete but have not replaced the log yet."""
    names = filesystem.list_directory(directory)
    return _named(name.removesuffix(PENDING_SUFFIX) for name in names if name.endswith(PENDING_SUFFIX))


def _named(names: Iterable[str]) -> list[SnapshotId]:
    found = (_SNAPSHOT_NAME.fullmatch(name) for name in names)
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def encode_records(
    records: Iterable[object], base_offset: int, epoch: int, now_ms: int, record_bytes_max: int | None = None
) -> bytes:
    """One batch of metadata records; raises ApiError if one of them is larger than `record_bytes_max`."""
    framed = [
        Record(offset, now_ms, None, encode_metadata_record(record, _version_of(record)))
        for offset, record in enumerate(records, base_offset)
    ]
    if record_bytes_max is not None and any(len(record.value or b"") > record_bytes_max for record in framed):
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"a record of the metadata log may have at most {record_bytes_max} bytes"
        )
    return build_batch(framed, base_offset=base_offset, leader_epoch=epoch)


def _version_of(record: Any) -> int:
    name = type(record).__name__
    if name in CORDONED_RECORD_VERSIONS and record.cordoned_log_dirs is not None:
        return CORDONED_RECORD_VERSIONS[name]
    return RECORD_VERSIONS.get(name, 0)


def encode_control(kind: ControlType, message: object, offset: int, epoch: int, now_ms: int, version: int = 0) -> bytes:
    """A control batch of one record."""
    return control_batch([(kind, message, version)], offset, epoch, now_ms)


class Batch(NamedTuple):
    """The content of one batch of the log: metadata records, or control records."""

    next_offset: int
    size_bytes: int
    records: list[Any]
    controls: list[Control]


def decode_batches(data: bytes, source: object) -> Iterator[Batch]:
    """Each batch of `data`, decoded."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        check_crc(data, position, header)
        batch = memoryview(data)[position : position + header.size_bytes]
        records: list[Any] = []
        controls: list[Control] = []
        if header.is_control:
            controls.extend(read_controls(batch))
        else:
            for record in read_records(batch, BATCH_BYTES_MAX):
                if record.value is None:
                    raise DamagedMetadata(f"{source}: the record at offset {record.offset} is empty")
                records.append(decode_metadata_record(record.value))
        yield Batch(header.next_offset, header.size_bytes, records, controls)
        position += header.size_bytes


def write_snapshot(
    filesystem: Filesystem,
    directory: Path,
    snapshot: SnapshotId,
    records: Iterable[object],
    now_ms: int,
    *,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> None:
    """Write an image's records as a snapshot; it appears only once it is complete."""
    path = directory / snapshot.file_name
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    header = snapshot_header(now_ms, kraft_version, voters)
    file = filesystem.write_file(temporary, control_batch(header, 0, snapshot.epoch, now_ms))
    offset = len(header)
    iterator = iter(records)
    while chunk := list(islice(iterator, RECORDS_PER_BATCH)):
        file.append(encode_records(chunk, offset, snapshot.epoch, now_ms))
        offset += len(chunk)
    file.append(control_batch(snapshot_footer(), offset, snapshot.epoch, now_ms))
    put_in_place(filesystem, file, path)


def write_bootstrap(filesystem: Filesystem, directory: Path, records: Iterable[object], now_ms: int) -> None:
    """Write a new cluster's first records to Kafka's file for them; the first controller appends them to the log."""
    listed = list(records)
    data = control_batch(snapshot_header(now_ms, 0, None), 0, 0, now_ms)
    data += encode_records(listed, 1, 0, now_ms) if listed else b""
    data += control_batch(snapshot_footer(), 1 + len(listed), 0, now_ms)
    filesystem.replace_file(directory / BOOTSTRAP_FILE, data)


def read_bootstrap(filesystem: Filesystem, directory: Path) -> list[object]:
    """A new cluster's first records; raises DamagedMetadata."""
    try:
        data = check_snapshot(filesystem, directory / BOOTSTRAP_FILE)
    except FileNotFoundError:
        return []
    return [record for batch in decode_batches(data, BOOTSTRAP_FILE) for record in batch.records]


def put_in_place(filesystem: Filesystem, file: File, path: Path) -> None:
    """Rename a complete file to its final name, durably."""
    file.sync()
    filesystem.rename(file.path, path)
    filesystem.sync_directory(path.parent)


def read_snapshot(filesystem: Filesystem, directory: Path, snapshot: SnapshotId) -> Iterator[Batch]:
    """The batches of a snapshot, after checking the whole file; raises DamagedMetadata."""
    path = directory / snapshot.file_name
    data = check_snapshot(filesystem, path)
    yield from decode_batches(data, path)


def check_snapshot(filesystem: Filesystem, path: Path) -> bytes:
    """The bytes of a complete snapshot; raises DamagedMetadata."""
    data = filesystem.read_file(path)
    scan = scan_batches(data, 0, len(data), check_crc=True)
    if scan.problem is not None or scan.position != len(data) or not scan.batches:
        raise DamagedMetadata(
            f"{path} is damaged at byte {scan.position}: {scan.problem or 'it is cut short'}; {RESTORE}. Where an "
            "older snapshot lies beside it, moving the damaged one elsewhere is enough: the log reaches back that far"
        )
    last = read_records(memoryview(data)[scan.batches[-1][0] :], BATCH_BYTES_MAX)[-1]
    if not read_header(data, scan.batches[-1][0]).is_control or control_type(last.key) != ControlType.SNAPSHOT_FOOTER:
        raise DamagedMetadata(f"{path} does not end with a footer; {RESTORE}")
    return data


class LogExtent(NamedTuple):
    """The range of a metadata log on disk, of which the last segment starts at `tail_offset`.

    `epoch` is its last batch's, 0 while it is empty.
    """

    start_offset: int
    tail_offset: int
    end_offset: int
    epoch: int


def inspect_log(filesystem: Filesystem, directory: Path) -> LogExtent | None:
    """Read the log without changing it; None when there is none. Raises DamagedMetadata.

    A write that a crash interrupted leaves fewer bytes than it announced, or zeros in place of its last blocks, and was
    never acknowledged. Bytes that are complete but fail their checksum were damaged later, and may have been
    acknowledged.
    """
    names = sorted(name for name in filesystem.list_directory(directory) if name.endswith(LOG_SUFFIX))
    if not names:
        return None
    start_offset = next_offset = int(names[0].partition(".")[0])
    tail_offset = int(names[-1].partition(".")[0])
    epoch = 0
    for name in names:
        path = directory / name
        data = filesystem.read_file(path)
        if int(name.partition(".")[0]) != next_offset:
            raise DamagedMetadata(f"{path} does not follow offset {next_offset - 1}: a segment is missing; {RESTORE}")
        scan = scan_batches(data, 0, len(data), check_crc=True)
        torn = scan.position < len(data) and (scan.problem is None or _ends_in_zeros(data, scan.position))
        if (scan.problem is not None and not torn) or (torn and name != names[-1]):
            raise DamagedMetadata(
                f"{path} is damaged at byte {scan.position}: {scan.problem or 'it is cut short'}; {RESTORE}"
            )
        for position, _, base_offset, last_offset, _ in scan.batches:
            if base_offset != next_offset:
                raise DamagedMetadata(
                    f"{path} is damaged at byte {position}: offset {base_offset} follows {next_offset - 1}; {RESTORE}"
                )
            next_offset = last_offset + 1
        if scan.batches:
            epoch = read_header(data, scan.batches[-1][0]).partition_leader_epoch
    return LogExtent(start_offset, tail_offset, next_offset, epoch)


def _ends_in_zeros(data: bytes, position: int) -> bool:
    """Whether only zeros follow `position`, or the next block boundary after it: blocks are written whole."""
    end = len(data.rstrip(b"\0"))
    return end <= position or -(-end // BLOCK_BYTES) * BLOCK_BYTES < len(data)


def check_agreement(
    directory: Path, extent: LogExtent | None, snapshot: SnapshotId | None, election: Election | None
) -> None:
    """Raise DamagedMetadata when log, newest snapshot and quorum-state contradict each other."""
    reached = snapshot.end_offset if snapshot is not None else 0
    if extent is None:
        if reached:
            raise DamagedMetadata(f"{directory} has a snapshot and no log; {RESTORE}")
        # A crash before the first batch leaves only quorum-state.
        return
    if extent.start_offset > reached:
        raise DamagedMetadata(
            f"the log in {directory} begins at offset {extent.start_offset}, and there is no snapshot that reaches "
            f"there; {RESTORE}"
        )
    if extent.end_offset < reached:
        raise DamagedMetadata(
            f"the log in {directory} ends at offset {extent.end_offset}, before the snapshot's end {reached}; {RESTORE}"
        )
    if election is None and extent.end_offset > 0:
        raise DamagedMetadata(f"{directory / QUORUM_STATE} is missing; {RESTORE}")
    if election is not None and election.epoch < extent.epoch:
        raise DamagedMetadata(
            f"{directory / QUORUM_STATE} remembers epoch {election.epoch}, and the log has epoch {extent.epoch}; "
            f"{RESTORE}"
        )
