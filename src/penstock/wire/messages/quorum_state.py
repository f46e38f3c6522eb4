"""Messages of the file family.

Generated from definitions/quorum_state.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class Voter(NamedTuple):
    voter_id: int = 0


class QuorumStateData(NamedTuple):
    """Versions 0-1, flexible from 0."""

    cluster_id: str = ""
    leader_id: int = -1
    leader_epoch: int = -1
    voted_id: int = -1
    voted_directory_id: bytes = ZERO_UUID
    applied_offset: int = 0
    current_voters: Sequence[Voter] | None = ()
