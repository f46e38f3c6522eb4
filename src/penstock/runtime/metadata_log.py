"""The metadata log's own files beside its segments: quorum-state, and snapshots of the image.

A snapshot `<end offset>-<epoch>.checkpoint` is a file of record batches: a header control record, the image's records,
a footer control record. It is written under another name and renamed when it is whole and synced, so a snapshot that
exists is complete; one that fails its checks was damaged later and nothing is read from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from penstock.core.raft.quorum import Election
from penstock.storage.files import Filesystem
from penstock.storage.names import LOG_SUFFIX
from penstock.wire import codec
from penstock.wire.frame import decode_metadata_record, encode_metadata_record
from penstock.wire.kernel import scan_batches
from penstock.wire.messages.control_records import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from penstock.wire.records import (
    ControlType,
    Record,
    build_batch,
    check_crc,
    control_key,
    control_type,
    read_header,
    read_records,
)

QUORUM_STATE = "quorum-state"
SNAPSHOT_SUFFIX = ".checkpoint"
RECORDS_PER_BATCH = 1000
RESTORE = "nothing was changed. Restore the metadata directory from a backup or from another controller before starting"
BATCH_BYTES_MAX = 64 * 1024 * 1024

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

# The highest version of each record that Kafka 4.1 writes, where it is not 0.
RECORD_VERSIONS = {
    "RegisterBrokerRecord": 3,
    "PartitionRecord": 2,
    "PartitionChangeRecord": 2,
    "BrokerRegistrationChangeRecord": 2,
}


class DamagedMetadata(Exception):
    """The metadata log or a snapshot is damaged. Nothing was changed; a person must decide."""


class SnapshotId(NamedTuple):
    """Up to where a snapshot reaches: the offset after its last record, and that record's epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SNAPSHOT_SUFFIX}"


def read_election(filesystem: Filesystem, directory: Path) -> Election | None:
    """The remembered epoch and vote; a fresh directory has none."""
    path = directory / QUORUM_STATE
    try:
        text = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    try:
        state = json.loads(text)
        return Election(int(state["leaderEpoch"]), int(state["leaderId"]), int(state["votedId"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedMetadata(f"{path} is damaged ({error}); {RESTORE}") from error


def write_election(filesystem: Filesystem, directory: Path, election: Election, voters: Iterable[int]) -> None:
    """Remember epoch and vote, durably, before anybody hears of them."""
    state = {
        "clusterId": "",
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    filesystem.replace_file(directory / QUORUM_STATE, json.dumps(state).encode())


def list_snapshots(filesystem: Filesystem, directory: Path) -> list[SnapshotId]:
    """Every snapshot there is, the one that reaches furthest last."""
    found = (_SNAPSHOT_NAME.fullmatch(name) for name in filesystem.list_directory(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def encode_records(records: Iterable[Any], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch of metadata records."""
    framed = [
        Record(offset, now_ms, None, encode_metadata_record(record, RECORD_VERSIONS.get(type(record).__name__, 0)))
        for offset, record in enumerate(records, base_offset)
    ]
    return build_batch(framed, base_offset=base_offset, leader_epoch=epoch)


def encode_control(kind: ControlType, message: object, offset: int, epoch: int, now_ms: int, version: int = 0) -> bytes:
    """One control batch of the metadata log."""
    record = Record(offset, now_ms, control_key(kind), codec.encode(message, version))
    return build_batch([record], base_offset=offset, leader_epoch=epoch, control=True)


def decode_batches(data: bytes, source: object) -> Iterator[tuple[int, list[Any]]]:
    """Each batch's next offset and its metadata records; control batches have none."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        check_crc(data, position, header)
        batch = memoryview(data)[position : position + header.size_bytes]
        records: list[Any] = []
        if not header.is_control:
            for record in read_records(batch, BATCH_BYTES_MAX):
                if record.value is None:
                    raise DamagedMetadata(f"{source}: the record at offset {record.offset} is empty")
                records.append(decode_metadata_record(record.value))
        yield header.next_offset, records
        position += header.size_bytes


def write_snapshot(
    filesystem: Filesystem, directory: Path, snapshot: SnapshotId, records: Iterable[Any], now_ms: int
) -> None:
    """Write an image's records as a snapshot; it exists when this returns, and not before it is whole."""
    parts = [
        encode_control(
            ControlType.SNAPSHOT_HEADER,
            SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms),
            0,
            snapshot.epoch,
            now_ms,
        )
    ]
    offset = 1
    iterator = iter(records)
    while chunk := list(islice(iterator, RECORDS_PER_BATCH)):
        parts.append(encode_records(chunk, offset, snapshot.epoch, now_ms))
        offset += len(chunk)
    footer = SnapshotFooterRecord(version=0)
    parts.append(encode_control(ControlType.SNAPSHOT_FOOTER, footer, offset, snapshot.epoch, now_ms))
    filesystem.replace_file(directory / snapshot.file_name, b"".join(parts))


def read_snapshot(filesystem: Filesystem, directory: Path, snapshot: SnapshotId) -> Iterator[Any]:
    """The records of a snapshot, after the whole file was checked; raises DamagedMetadata."""
    path = directory / snapshot.file_name
    data = filesystem.read_file(path)
    scan = scan_batches(data, 0, len(data), check_crc=True)
    if scan.problem is not None or scan.position != len(data) or not scan.batches:
        raise DamagedMetadata(
            f"{path} is damaged at byte {scan.position}: {scan.problem or 'it is cut short'}; {RESTORE}. Where an "
            "older snapshot lies beside it, moving the damaged one elsewhere is enough: the log reaches back that far"
        )
    last = read_records(memoryview(data)[scan.batches[-1][0] :], BATCH_BYTES_MAX)[-1]
    if control_type(last.key) is not ControlType.SNAPSHOT_FOOTER:
        raise DamagedMetadata(f"{path} does not end with a footer; {RESTORE}")
    for _, records in decode_batches(data, path):
        yield from records


class LogExtent(NamedTuple):
    """What a metadata log on disk reaches over; `epoch` is its last batch's, 0 while it has none."""

    start_offset: int
    end_offset: int
    epoch: int


def inspect_log(filesystem: Filesystem, directory: Path) -> LogExtent | None:
    """Read the log through without changing it; None when there is none. Raises DamagedMetadata.

    A write that a crash cut short leaves fewer bytes than it announced, or zeros, and was never acknowledged. Bytes
    that are all there and fail their checksum were damaged later, and what they said may have been acknowledged.
    """
    names = sorted(name for name in filesystem.list_directory(directory) if name.endswith(LOG_SUFFIX))
    if not names:
        return None
    start_offset = next_offset = int(names[0].partition(".")[0])
    epoch = 0
    for name in names:
        path = directory / name
        data = filesystem.read_file(path)
        if int(name.partition(".")[0]) != next_offset:
            raise DamagedMetadata(f"{path} does not follow offset {next_offset - 1}: a segment is missing; {RESTORE}")
        scan = scan_batches(data, 0, len(data), check_crc=True)
        torn = scan.position < len(data) and (scan.problem is None or not any(memoryview(data)[scan.position :]))
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
    return LogExtent(start_offset, next_offset, epoch)


def check_agreement(
    directory: Path, extent: LogExtent | None, snapshot: SnapshotId | None, election: Election | None
) -> None:
    """Raise DamagedMetadata when log, newest snapshot and quorum-state cannot all be whole."""
    reached = snapshot.end_offset if snapshot is not None else 0
    if extent is None:
        if snapshot is not None:
            raise DamagedMetadata(f"{directory} has a snapshot and no log; {RESTORE}")
        # A quorum-state alone is what a crash leaves before the first batch.
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


def leader_change_batch(epoch: int, leader_id: int, voters: Iterable[int], offset: int, now_ms: int) -> bytes:
    """The control batch that opens an epoch."""
    named = [LeaderChangeMessageVoter(voter_id=voter) for voter in voters]
    message = LeaderChangeMessage(version=0, leader_id=leader_id, voters=named, granting_voters=named)
    return encode_control(ControlType.LEADER_CHANGE, message, offset, epoch, now_ms)
