"""KIP-951: the current leader along with the error, so that a client need not refresh its metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.replication.partitions import Partitions

HINTED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))

Endpoint = TypeVar("Endpoint")


class LeaderHints:
    """Collects the leaders in one response, and their addresses on the client's listener."""

    __slots__ = ("_leaders", "_partitions")

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._leaders: dict[int, None] = {}

    def leader(self, code: int, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> tuple[int, int]:
        """The leader's id and epoch, if the error calls for a hint and it is known; otherwise -1 twice."""
        if code not in HINTED:
            return -1, -1
        known = self._partitions.state_of(topic, topic_id, partition, by_id=by_id)
        if known is None:
            return -1, -1
        self._leaders[known.leader] = None
        return known.leader, known.leader_epoch

    def endpoints(self, listener_name: str, make: Callable[[int, str, int, str | None], Endpoint]) -> list[Endpoint]:
        """The collected leaders that have an address."""
        found = []
        for leader in self._leaders:
            broker = self._partitions.image.brokers.get(leader)
            endpoint = broker.endpoint(listener_name) if broker is not None else None
            if broker is not None and endpoint is not None:
                found.append(make(leader, *endpoint, broker.registration.rack))
        return found
