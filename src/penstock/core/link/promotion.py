"""Claims of leaders that their mirror partitions have everything the source had, while a topic is being promoted.

A claim belongs to one promotion and one leader epoch, and it must be renewed. So one whose promotion was canceled, or
whose leader was replaced or fell silent, counts no more, whatever arrives late. The active controller keeps claims in
memory: after a change of controllers the leaders repeat them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import Uuid

CLAIM_MS = 5_000


class Claim(NamedTuple):
    """One leader's word for one partition: the mirror ends at `end_offset`, and so did the source."""

    promotion_id: int
    leader: int
    leader_epoch: int
    end_offset: int
    made_ms: int


class Claims:
    """The claims that the active controller received."""

    def __init__(self) -> None:
        self._claims: dict[tuple[Uuid, int], Claim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def note(self, topic_id: Uuid, partition: int, claim: Claim) -> None:
        """A leader claims that its partition is ready; a negative end withdraws what it claimed before."""
        key = topic_id, partition
        if claim.end_offset >= 0:
            self._claims[key] = claim
        else:
            former = self._claims.get(key)
            if former is not None and former.leader == claim.leader:
                del self._claims[key]

    def ends(
        self, topic_id: Uuid, promotion_id: int, leaders: Sequence[tuple[int, int]], now_ms: int
    ) -> list[int] | None:
        """Where each partition ends, if there is a valid claim for all of them. `leaders` have ids and epochs."""
        found = []
        for partition, (leader, leader_epoch) in enumerate(leaders):
            claim = self._claims.get((topic_id, partition))
            if claim is None or (claim.promotion_id, claim.leader, claim.leader_epoch) != (
                promotion_id,
                leader,
                leader_epoch,
            ):
                return None
            if not 0 <= now_ms - claim.made_ms < CLAIM_MS:
                return None
            found.append(claim.end_offset)
        return found

    def forget(self, topic_id: Uuid) -> None:
        """The topic is promoted, or is not to be promoted any more."""
        for key in [key for key in self._claims if key[0] == topic_id]:
            del self._claims[key]

    def clear(self) -> None:
        """Another node is the active controller."""
        self._claims.clear()
