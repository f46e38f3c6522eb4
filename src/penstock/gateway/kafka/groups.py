"""Offsets and lag of consumer groups, without joining them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.operations import groups, offsets
from penstock.client.operations.groups import CLASSIC, CONSUMER, Group, Member, ShareOffset
from penstock.client.operations.offsets import LATEST
from penstock.client.operations.routing import Refused
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.errors import problem_of
from penstock.gateway.web.problem import Problem
from penstock.model.ids import TopicPartition

# The kinds of groups that have committed offsets; older brokers don't name kinds.
KINDS = (CLASSIC, CONSUMER, None)
# librdkafka's names of states where they are not Kafka's.
STATE_NAMES = {"PreparingRebalance": "PREPARING_REBALANCING", "CompletingRebalance": "COMPLETING_REBALANCING"}


class CommittedOffset(NamedTuple):
    """A group's committed offset in a partition, and the partition's end offset."""

    topic: str
    partition: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        """How many records the group has not read."""
        return max(0, self.end - self.offset)


class Groups:
    """Consumer groups, as far as that needs no membership."""

    def __init__(self, brokers: BrokerWire) -> None:
        self._brokers = brokers

    async def listed(self) -> tuple[list[Group], list[Problem]]:
        """The groups of all kinds by name, without members, and why those of some brokers are missing."""
        found, problems = await self._brokers.run(groups.list_reachable_groups)
        return found, [problem_of(each) for each in problems]

    async def describe(self, names: Sequence[str]) -> dict[str, Group]:
        """Groups of any kind with their members; those that do not exist are left out."""
        found: dict[str, Group] = {}
        for name, group in (await self._brokers.run(groups.describe_groups, names)).items():
            if isinstance(group, Refused):
                raise problem_of(group)
            found[name] = group
        return found

    async def commit(self, group: str, targets: Mapping[TopicPartition, int]) -> None:
        """Commit a group's offsets in one request. Groups with members commit themselves: 409."""
        wanted = {place: groups.CommittedOffset(offset) for place, offset in sorted(targets.items())}
        _check((await self._brokers.run(groups.commit_offsets, group, wanted)).values())

    async def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets."""
        _check((await self._brokers.run(groups.delete_groups, [group])).values())

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """A group's committed offsets by topic and partition; empty if there is no such group."""
        found = (await self._brokers.run(groups.committed_offsets, [group]))[group]
        if isinstance(found, Refused):
            raise problem_of(found)
        return {place: each.offset for place, each in found.items()}

    async def share_offsets(self, shared: Iterable[Group]) -> dict[str, dict[TopicPartition, ShareOffset]]:
        """Where share groups, which were described, are in their partitions."""
        return await self._brokers.run(groups.share_offsets, shared)

    async def lags(self, group: str) -> list[CommittedOffset]:
        """A group's lag by partition."""
        committed = await self.committed(group)
        ends = await self.offsets(committed, LATEST)
        return [CommittedOffset(*place, offset, ends.get(place, offset)) for place, offset in committed.items()]

    async def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Offsets of partitions by timestamp, beginning or end; partitions whose leader did not answer are left out."""
        found = await self._brokers.run(offsets.reachable_positions, dict.fromkeys(partitions, timestamp))
        return {place: position.offset for place, position in found.items()}


def is_consumer_group(group: Group) -> bool:
    """Whether a group commits offsets; share groups and Kafka Streams' new groups are of other kinds."""
    return group.type in KINDS


def state_name(group: Group) -> str:
    """The state that a group is in, by librdkafka's names."""
    state = group.state or "UNKNOWN"
    return STATE_NAMES.get(state, state.upper())


def owners_of(group: Group) -> dict[TopicPartition, Member]:
    """The member that each partition is assigned to."""
    return {place: member for member in group.members for place in member.assignment}


def _check(results: Iterable[Refused | None]) -> None:
    for refused in results:
        if refused is not None:
            raise problem_of(refused)
