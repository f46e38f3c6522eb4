"""Messages of the control family.

Generated from definitions/control_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class EndTxnMarker(NamedTuple):
    """Version 0."""

    coordinator_epoch: int = 0


class LeaderChangeMessageVoter(NamedTuple):
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID


class LeaderChangeMessage(NamedTuple):
    """Versions 0-1, flexible from 0."""

    version: int = 0
    leader_id: int = 0
    voters: Sequence[LeaderChangeMessageVoter] = ()
    granting_voters: Sequence[LeaderChangeMessageVoter] = ()


class SnapshotHeaderRecord(NamedTuple):
    """Version 0, flexible from 0."""

    version: int = 0
    last_contained_log_timestamp: int = 0


class SnapshotFooterRecord(NamedTuple):
    """Version 0, flexible from 0."""

    version: int = 0


class KRaftVersionRecord(NamedTuple):
    """Version 0, flexible from 0."""

    version: int = 0
    kraft_version: int = 0


class Endpoint(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class KRaftVersionFeature(NamedTuple):
    min_supported_version: int = 0
    max_supported_version: int = 0


class VotersRecordVoter(NamedTuple):
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    endpoints: Sequence[Endpoint] = ()
    kraft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class VotersRecord(NamedTuple):
    """Version 0, flexible from 0."""

    version: int = 0
    voters: Sequence[VotersRecordVoter] = ()


class ControlRecordKey(NamedTuple):
    """Version 0."""

    version: int = 0
    type: int = 0
