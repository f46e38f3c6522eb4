"""The lag of groups: from Penstock's coordinators, or else from committed and end offsets.

Of share groups, coordinators of every kind know the lag.

Apache Kafka does not support Penstock's API and closes the connection; it is not asked again. What only a Penstock
coordinator knows, the age of the first unread record and the status, is None then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cli.group.queries import committed_offsets, end_offsets
from penstock.cli.wire_client import WireClient
from penstock.client.failures import NoAnswer
from penstock.client.operations.groups import SHARE, Committed, Group, ShareOffset, share_offsets
from penstock.client.view import BrokerView
from penstock.model.ids import TopicPartition
from penstock.wire.messages.describe_lag import DescribeLagRequest, DescribeLagResponse, LagGroup, LagPartition

# From good to bad.
STATUSES = ("OK", "WARN", "STALL", "STOP")


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group; None for what is unknown."""

    topic: str
    partition: int
    committed_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    status: str | None = None
    committed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's partitions in order."""

    partitions: Sequence[PartitionLag] = field(default=())

    @property
    def lag(self) -> int | None:
        """The total lag in records over all partitions; None if no partition's lag is known."""
        return _total([each.lag for each in self.partitions])

    @property
    def lag_ms(self) -> int | None:
        """How long the oldest unread record has been waiting."""
        return max((each.lag_ms for each in self.partitions if each.lag_ms is not None), default=None)

    @property
    def status(self) -> str | None:
        """The status of the worst partition."""
        known = [each.status for each in self.partitions if each.status is not None]
        return max(known, key=STATUSES.index, default=None)


class LagSource:
    """Measures groups, repeatedly if needed."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._acquainted: set[int] = set()
        self._strangers: set[int] = set()

    def measure(self, groups: Iterable[Group]) -> dict[str, GroupLag]:
        """Every group by name, with the partitions it has committed in or reads."""
        every = list(groups)
        shared = self._client.run(share_offsets, [group for group in every if group.type == SHARE])
        found = {group.group_id: _share_lag(shared.get(group.group_id, {})) for group in every if group.type == SHARE}
        return found | self._measure({group.group_id: group for group in every if group.type != SHARE})

    def _measure(self, described: Mapping[str, Group]) -> dict[str, GroupLag]:
        measured = self._ask_coordinators(described.values())
        found = {name: GroupLag([*map(_partition, answer.partitions)]) for name, answer in measured.items()}
        unmeasured = [name for name in described if name not in found]
        committed = committed_offsets(self._client, unmeasured)
        ends = end_offsets(
            self._client,
            {
                *(name for offsets in committed.values() for name in offsets),
                *(name for group in described.values() for name in _uncommitted(group, found)),
            },
        )
        found |= {name: _from_offsets(offsets, ends) for name, offsets in committed.items()}
        return {name: _with_assigned(found[name], group, ends) for name, group in described.items()}

    def _ask_coordinators(self, groups: Iterable[Group]) -> dict[str, LagGroup]:
        answers: dict[str, LagGroup] = {}
        coordinated: dict[BrokerView, list[str]] = defaultdict(list)
        for group in groups:
            if group.coordinator is not None and group.coordinator.node_id not in self._strangers:
                coordinated[group.coordinator].append(group.group_id)
        for broker, names in coordinated.items():
            try:
                response: DescribeLagResponse = self._client.ask_at(broker.address, DescribeLagRequest(names))
            except NoAnswer:
                # A broker that has answered before is a Penstock broker with a problem, and is queried again.
                self._strangers |= {broker.node_id} - self._acquainted
                continue
            self._acquainted.add(broker.node_id)
            if not response.error_code:
                answers |= {group.group_id: group for group in response.groups if not group.error_code}
        return answers


def _partition(row: LagPartition) -> PartitionLag:
    return PartitionLag(
        row.topic,
        row.partition,
        row.committed_offset,
        row.end_offset,
        row.lag,
        row.lag_ms if row.lag_ms >= 0 else None,
        row.status if row.status in STATUSES else None,
        row.committed_ms if row.committed_ms >= 0 else None,
    )


def _share_lag(offsets: Mapping[TopicPartition, ShareOffset]) -> GroupLag:
    """Lag counts records that are not finished yet, wherever they are; there is no one offset that is committed."""
    return GroupLag([PartitionLag(*name, each.start_offset, lag=each.lag) for name, each in sorted(offsets.items())])


def _from_offsets(committed: Committed, ends: dict[TopicPartition, int]) -> GroupLag:
    rows = []
    for name, place in committed.items():
        end = ends.get(name)
        lag = max(0, end - place.offset) if end is not None else None
        rows.append(PartitionLag(*name, place.offset, end, lag))
    return GroupLag(rows)


def _uncommitted(group: Group, found: dict[str, GroupLag]) -> set[TopicPartition]:
    """Partitions that a group's members read without a commit yet."""
    lag = found.get(group.group_id, GroupLag())
    held = {TopicPartition(each.topic, each.partition) for each in lag.partitions}
    return {name for member in group.members for name in member.assignment} - held


def _with_assigned(lag: GroupLag, group: Group, ends: dict[TopicPartition, int]) -> GroupLag:
    missing = _uncommitted(group, {group.group_id: lag})
    rows = [*lag.partitions, *(PartitionLag(*name, end_offset=ends.get(name)) for name in missing)]
    return GroupLag(sorted(rows, key=lambda row: (row.topic, row.partition)))


def _total(lags: Sequence[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known or not lags else None
