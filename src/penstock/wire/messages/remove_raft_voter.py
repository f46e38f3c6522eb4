"""Messages of the RemoveRaftVoter API.

Generated from definitions/remove_raft_voter.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class RemoveRaftVoterRequest(NamedTuple):
    """Version 0, flexible from 0."""

    cluster_id: str | None = ""
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID

    def response_class(self) -> type[RemoveRaftVoterResponse]:
        return RemoveRaftVoterResponse


class RemoveRaftVoterResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
