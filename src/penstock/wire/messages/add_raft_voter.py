"""Messages of the AddRaftVoter API.

Generated from definitions/add_raft_voter.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class AddRaftVoterRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    cluster_id: str | None = ""
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: Sequence[Listener] = ()
    ack_when_committed: bool = True

    def response_class(self) -> type[AddRaftVoterResponse]:
        return AddRaftVoterResponse


class AddRaftVoterResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
