"""Messages of the UpdateRaftVoter API.

Generated from definitions/update_raft_voter.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class KRaftVersionFeature(NamedTuple):
    min_supported_version: int = 0
    max_supported_version: int = 0


class UpdateRaftVoterRequest(NamedTuple):
    """Version 0, flexible from 0."""

    cluster_id: str | None = ""
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: Sequence[Listener] = ()
    kraft_version_feature: KRaftVersionFeature = KRaftVersionFeature()

    def response_class(self) -> type[UpdateRaftVoterResponse]:
        return UpdateRaftVoterResponse


class CurrentLeader(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1
    host: str = ""
    port: int = 0


class UpdateRaftVoterResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    current_leader: CurrentLeader = CurrentLeader()
