"""The control records of the metadata log and its snapshots: leader changes, voters, snapshot headers and footers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.core.raft.events import LeaderChange
from penstock.core.raft.voters import Voter, VoterEndpoint, VoterHistory, VoterSet
from penstock.wire import codec
from penstock.wire.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from penstock.wire.record_types import Buffer
from penstock.wire.records import ControlType, Record, build_batch, control_key, control_type, read_records

BATCH_BYTES_MAX = 64 * 1024 * 1024

_CLASSES: dict[ControlType, type[object]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}

ControlMessage = tuple[ControlType, object, int]


class Control(NamedTuple):
    """One control record."""

    offset: int
    kind: ControlType
    message: Any


def control_batch(messages: Iterable[ControlMessage], offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch of control records; each message comes with its type and version."""
    records = [
        Record(number, now_ms, control_key(kind), codec.encode(message, version))
        for number, (kind, message, version) in enumerate(messages, offset)
    ]
    return build_batch(records, base_offset=offset, leader_epoch=epoch, control=True)


def read_controls(batch: Buffer) -> Iterator[Control]:
    """The control records of a batch that this version knows."""
    for record in read_records(batch, BATCH_BYTES_MAX):
        kind = control_type(record.key)
        if kind not in _CLASSES or record.value is None:
            continue
        # Every version of these messages begins with its version number.
        version = int.from_bytes(bytes(record.value[:2]), "big") if kind is ControlType.LEADER_CHANGE else 0
        yield Control(record.offset, kind, codec.decode(_CLASSES[kind], version, record.value, whole=False))


def leader_change(change: LeaderChange, voters: VoterSet, kraft_version: int) -> ControlMessage:
    """The record that starts an epoch."""

    def named(ids: Sequence[int]) -> list[LeaderChangeMessageVoter]:
        found = [voters.get(voter_id) or Voter(voter_id) for voter_id in ids]
        return [LeaderChangeMessageVoter(voter.voter_id, voter.directory_id) for voter in found]

    version = 1 if kraft_version else 0
    message = LeaderChangeMessage(version, change.leader_id, named(change.voters), named(change.granting))
    if not version:
        bare = [LeaderChangeMessageVoter(voter_id) for voter_id in change.voters]
        granting = [LeaderChangeMessageVoter(voter_id) for voter_id in change.granting]
        message = message._replace(voters=bare, granting_voters=granting)
    return ControlType.LEADER_CHANGE, message, version


def epoch_opening(change: LeaderChange, history: VoterHistory) -> list[ControlMessage]:
    """What a leader starts its epoch with."""
    messages = [leader_change(change, history.voters, history.kraft_version)]
    if history.kraft_version and history.offset < 0:
        # The set that this node was formatted with applies to all nodes once it is in the log.
        messages += [kraft_version(history.kraft_version), voters_record(history.voters)]
    return messages


def kraft_version(version: int) -> ControlMessage:
    """The quorum's protocol version: 0 has a static set of voters, 1 one in the log."""
    return ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=version), 0


def voters_record(voters: VoterSet) -> ControlMessage:
    """The set of voters from this record on."""
    rows = [
        VotersRecordVoter(
            voter.voter_id,
            voter.directory_id,
            [Endpoint(*endpoint) for endpoint in voter.endpoints],
            KRaftVersionFeature(voter.kraft_version_min, voter.kraft_version_max),
        )
        for voter in voters.voters
    ]
    return ControlType.KRAFT_VOTERS, VotersRecord(version=0, voters=rows), 0


def read_voters(message: VotersRecord) -> VoterSet:
    """The set of voters in a record."""
    return VoterSet(
        Voter(
            row.voter_id,
            row.voter_directory_id,
            tuple(VoterEndpoint(one.name, one.host, one.port) for one in row.endpoints),
            row.kraft_version_feature.min_supported_version,
            row.kraft_version_feature.max_supported_version,
        )
        for row in message.voters
    )


def snapshot_header(now_ms: int, version: int, voters: VoterSet | None) -> list[ControlMessage]:
    """What a snapshot begins with; the voters only if they are in the log."""
    messages: list[ControlMessage] = [
        (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms), 0)
    ]
    if version and voters is not None:
        messages += [kraft_version(version), voters_record(voters)]
    return messages


def snapshot_footer() -> list[ControlMessage]:
    """What a complete snapshot ends with."""
    return [(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0), 0)]
