"""KIP-392: which replica a consumer should read from, given the rack it is in."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.replica.leader import LeaderState


def choose_replica(leading: LeaderState, racks: Mapping[int, str | None], rack: str, offset: int) -> int | None:
    """The in-sync follower in `rack` with the most records after `offset`; None to read from the leader."""
    if racks.get(leading.leader_id) == rack:
        return None
    chosen, chosen_end = None, -1
    for replica in sorted(leading.in_sync_replicas):
        assert replica in leading.in_sync_replicas
        follower = leading.follower(replica)
        if follower is None or racks.get(replica) != rack:
            continue
        if follower.start_offset <= offset <= follower.end_offset and follower.end_offset > chosen_end:
            chosen, chosen_end = replica, follower.end_offset
    assert chosen != leading.leader_id, "the leader is the answer where no follower is"
    assert chosen is None or chosen_end >= offset, "a chosen follower has what is read"
    return chosen
